// State tensors, clipping and counting; see optimizer.h.
#include "optim/optimizer.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "error.h"
#include "number/random.h"

namespace ada::optim {
namespace {

using Kind = backend::UpdateRule::Kind;

// The state names of a rule, state1 first (torch.optim's own words).
std::vector<const char*> StateNames(const backend::UpdateRule& rule) {
  if (rule.kind != Kind::kSgd) return {"exp_avg", "exp_avg_sq"};
  if (rule.momentum == 0) return {};
  return {rule.velocity == backend::UpdateRule::Velocity::kSteps ? "velocity" : "momentum"};
}

Tensor AllocateLike(backend::Backend& backend, const Tensor& value) {
  Tensor tensor = value;
  tensor.data = backend.Allocate(value.bytes());
  return tensor;
}

}  // namespace

std::vector<std::string> Optimizer::StatesOf(const backend::UpdateRule& rule) {
  const std::vector<const char*> names = StateNames(rule);
  return {names.begin(), names.end()};
}

std::size_t StateTensors(const backend::UpdateRule& rule) { return StateNames(rule).size(); }

Optimizer::Optimizer(backend::Backend& backend, const backend::UpdateRule& rule,
                     const std::vector<OptimizedParameter>& parameters, double clip_norm,
                     std::vector<backend::WatchedRounding> watched)
    : backend_(backend), rule_(rule), clip_norm_(clip_norm) {
  ADA_CHECK(clip_norm >= 0);
  std::vector<backend::UpdateSlot> slots;
  for (const OptimizedParameter& parameter : parameters) {
    ADA_CHECK(parameter.value && parameter.gradient);
    ADA_CHECK(parameter.value.storage == Storage::kF32);
    ADA_CHECK(parameter.gradient.storage == Storage::kF32);
    ADA_CHECK(parameter.value.shape.numel() == parameter.gradient.shape.numel());
    backend::UpdateSlot slot{parameter.value,
                             parameter.gradient,
                             {},
                             {},
                             parameter.decay,
                             parameter.lr,
                             StreamId("update:" + parameter.name)};
    masters_.push_back(parameter.value);
    Tensor* const states[] = {&slot.state1, &slot.state2};
    const std::vector<const char*> names = StateNames(rule);
    ADA_CHECK(names.size() <= std::size(states));
    for (std::size_t i = 0; i < names.size(); ++i) {
      *states[i] = AllocateLike(backend, parameter.value);
      state_.push_back({"optimizer." + parameter.name + "." + names[i], *states[i]});
    }
    slots.push_back(slot);
  }
  op_ = backend.MakeUpdate(rule, std::move(slots), std::move(watched));
}

void Optimizer::Plan(backend::UpdatePlan plan) {
  ADA_CHECK(!planned_);
  const bool limited = plan.sanitize_to > 0 && std::isfinite(plan.sanitize_to);
  ADA_CHECK(limited || plan.on_overflow == backend::UpdatePlan::OnOverflow::kSkip);
  plan.clip_norm = clip_norm_;
  plan.step.count = updates_ + 1;
  op_->Plan(plan);
  planned_ = true;
}

backend::UpdateOutcome Optimizer::Outcome() {
  ADA_CHECK(planned_);
  planned_ = false;
  const backend::UpdateOutcome outcome = op_->Outcome();
  if (outcome.updated) ++updates_;
  return outcome;
}

std::vector<KeptStats> Optimizer::Stats() const {
  const std::vector<TensorStats> all = op_->Stats();
  std::vector<KeptStats> stats;
  for (std::size_t i = 0; i + 3 < all.size(); i += 4)
    stats.push_back({all[i], all[i + 1], all[i + 2], all[i + 3]});
  return stats;
}

void Optimizer::RoundMasters() {
  const NumberFormat& format = rule_.masters.format;
  if (format == kFp32) return;
  std::vector<float> values;
  for (const Tensor& master : masters_) {
    values.resize(static_cast<std::size_t>(master.shape.numel()));
    backend_.Download(values.data(), master.data, master.bytes());
    for (float& value : values) value = RoundTo(format, value);
    backend_.Upload(master.data, values.data(), master.bytes());
  }
}

void Optimizer::set_updates(std::int64_t updates) {
  ADA_CHECK(updates >= 0);
  updates_ = updates;
}

}  // namespace ada::optim
