// State tensors, clipping and counting; see optimizer.h.
#include "optim/optimizer.h"

#include <cmath>
#include <utility>

#include "backend/state_maps.h"
#include "error.h"
#include "number/random.h"
#include "optim/states.h"

namespace ada::optim {
namespace {

using backend::StateStorage;
using backend::UpdateRule;

const UpdateRule& RuleOf(const UpdateRule& rule, bool other) { return other ? *rule.others : rule; }

std::int64_t Numel(const std::vector<std::int64_t>& dims) {
  std::int64_t numel = 1;
  for (const std::int64_t dim : dims) numel *= dim;
  return numel;
}

// The shape of a state, in torch's words; empty: the parameter's.
std::vector<std::int64_t> DimsOf(const StateSpec& state, std::vector<std::int64_t> dims) {
  switch (state.form) {
    case StateSpec::Form::kRows:
      dims.back() = 1;
      return dims;
    case StateSpec::Form::kColumns:
      dims[dims.size() - 2] = 1;
      return dims;
    case StateSpec::Form::kPair:
      return {2};
    default:
      return {};
  }
}

Tensor Allocate(backend::Backend& backend, std::int64_t values) {
  Tensor tensor;
  tensor.shape = {values, 1, 1, 1};
  tensor.data = backend.Allocate(tensor.bytes());
  return tensor;
}
Tensor AllocateLike(backend::Backend& backend, const Tensor& value) {
  Tensor tensor = value;
  tensor.data = backend.Allocate(value.bytes());
  return tensor;
}

// Calls use(bits of a value, values) for each tensor that a parameter's states and their scales are
// stored in.
void ForStored(const UpdateRule& rule, const std::vector<std::int64_t>& dims, auto&& use) {
  const std::int64_t numel = Numel(dims);
  for (const StateSpec& state : StatesOf(rule, MatrixOf(rule, dims))) {
    const std::vector<std::int64_t> own = DimsOf(state, dims);
    if (!own.empty()) {
      use(32, Numel(own));
      continue;
    }
    const StateStorage kept = backend::StateStorageOf(rule, state.slot);
    const bool coded = backend::IsCoded(kept, numel), plain = !kept.is_scaled();
    const bool map = kept.map != StateStorage::Map::kFormat;
    const int map_bits = kept.map == StateStorage::Map::kTorchao4 ? 4 : 8;
    const int bits = 1 + kept.format.exponent_bits + kept.format.mantissa_bits;
    use(coded && map ? map_bits : coded || plain ? bits : 32, numel);
    if (coded) use(32, backend::ScalesOf(kept, numel));
  }
  if (rule.compensation != UpdateRule::Compensation::kNone) use(16, numel);
}

}  // namespace

std::uint64_t StateBytes(const UpdateRule& rule, const std::vector<std::int64_t>& dims,
                         bool other) {
  std::uint64_t bytes = 0;
  ForStored(RuleOf(rule, other), dims, [&](int bits, std::int64_t values) {
    bytes += (static_cast<std::uint64_t>(values) * static_cast<std::uint64_t>(bits) + 7) / 8;
  });
  return bytes;
}

std::uint64_t StateMemory(const UpdateRule& rule, const std::vector<std::int64_t>& dims,
                          bool other) {
  std::uint64_t bytes = 0;
  ForStored(RuleOf(rule, other), dims, [&](int, std::int64_t values) {
    bytes += static_cast<std::uint64_t>(values) * sizeof(float);
  });
  return bytes;
}

Optimizer::Optimizer(backend::Backend& backend, const backend::UpdateRule& rule,
                     const std::vector<OptimizedParameter>& parameters, double clip_norm,
                     std::vector<backend::WatchedRounding> watched)
    : backend_(backend), rule_(rule), clip_norm_(clip_norm) {
  ADA_CHECK(clip_norm >= 0);
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
    const UpdateRule& own = RuleOf(rule_, parameter.other);
    slot.other = parameter.other;
    slot.matrix = MatrixOf(own, parameter.dims);
    AddStates(parameter, own, slot);
    slots_.push_back(slot);
  }
  op_ = backend.MakeUpdate(rule_, slots_, std::move(watched));
}

void Optimizer::AddStates(const OptimizedParameter& parameter, const UpdateRule& rule,
                          backend::UpdateSlot& slot) {
  Tensor* const states[] = {&slot.state1, &slot.state2, &slot.state3};
  Tensor* const scales[] = {&slot.scale1, &slot.scale2, &slot.scale3};
  const std::string prefix = "optimizer." + parameter.name + ".";
  for (const StateSpec& state : StatesOf(rule, slot.matrix)) {
    const std::vector<std::int64_t> dims = DimsOf(state, parameter.dims);
    Tensor& tensor = *states[state.slot];
    tensor =
        dims.empty() ? AllocateLike(backend_, parameter.value) : Allocate(backend_, Numel(dims));
    state_.push_back({prefix + state.name, tensor, dims});
    if (!dims.empty()) continue;
    const std::int64_t blocks =
        backend::ScalesOf(backend::StateStorageOf(rule, state.slot), parameter.value.shape.numel());
    if (blocks == 0) continue;
    Tensor& scale = *scales[state.slot];
    scale = Allocate(backend_, blocks);
    state_.push_back({prefix + state.name + "_scale", scale, {blocks}});
  }
  if (rule.compensation == UpdateRule::Compensation::kNone) return;
  slot.rest = AllocateLike(backend_, parameter.value);
  state_.push_back({prefix + NameOfRest(rule), slot.rest});
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

std::vector<UpdateStats> Optimizer::Stats() const {
  const std::vector<TensorStats> all = op_->Stats();
  const std::vector<backend::NewtonSchulzStats> of_iteration = op_->OfNewtonSchulz();
  std::vector<UpdateStats> stats;
  if (all.empty()) return stats;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const TensorStats* const parts = &all[i * backend::kUpdateParts];
    UpdateStats own{parts[0], parts[1], {}};
    if (!of_iteration.empty()) own.newton_schulz = of_iteration[i];
    const UpdateRule& rule = RuleOf(rule_, slots_[i].other);
    for (const StateSpec& state : StatesOf(rule, slots_[i].matrix))
      own.states.emplace_back(state.name, parts[2 + state.slot]);
    stats.push_back(std::move(own));
  }
  return stats;
}

void Optimizer::RoundMasters() {
  const NumberFormat& format = rule_.masters.format;
  if (format == kFp32) return;
  std::vector<float> values;
  for (const backend::UpdateSlot& slot : slots_) {
    const Tensor& master = slot.value;
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
