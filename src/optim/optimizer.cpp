// State tensors, clipping and counting; see optimizer.h.
#include "optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/error.h"

namespace ada::optim {
namespace {

using Kind = backend::UpdateRule::Kind;

// The state names of a rule, state1 first (torch.optim's own words).
std::vector<const char*> StateNames(const backend::UpdateRule& rule) {
  if (rule.kind != Kind::kSgd) return {"exp_avg", "exp_avg_sq"};
  if (rule.momentum != 0) return {"momentum"};
  return {};
}

Tensor AllocateLike(backend::Backend& backend, const Tensor& value) {
  Tensor tensor = value;
  tensor.data = backend.Allocate(value.bytes());
  return tensor;
}

}  // namespace

Optimizer::Optimizer(backend::Backend& backend, const backend::UpdateRule& rule,
                     const std::vector<OptimizedParameter>& parameters, double clip_norm)
    : clip_norm_(clip_norm) {
  ADA_CHECK(clip_norm >= 0);
  std::vector<backend::UpdateSlot> slots;
  for (const OptimizedParameter& parameter : parameters) {
    ADA_CHECK(parameter.value && parameter.gradient);
    ADA_CHECK(parameter.value.storage == Storage::kF32);
    ADA_CHECK(parameter.gradient.storage == Storage::kF32);
    ADA_CHECK(parameter.value.shape.numel() == parameter.gradient.shape.numel());
    backend::UpdateSlot slot{parameter.value, parameter.gradient, {}, {}, parameter.decay};
    Tensor* const states[] = {&slot.state1, &slot.state2};
    const std::vector<const char*> names = StateNames(rule);
    ADA_CHECK(names.size() <= std::size(states));
    for (std::size_t i = 0; i < names.size(); ++i) {
      *states[i] = AllocateLike(backend, parameter.value);
      state_.push_back({"optimizer." + parameter.name + "." + names[i], *states[i]});
    }
    slots.push_back(slot);
  }
  op_ = backend.MakeUpdate(rule, std::move(slots));
}

double Optimizer::GradientNorm() { return norm_ = op_->GradientNorm(); }

void Optimizer::Sanitize(float largest) {
  ADA_CHECK(largest > 0 && std::isfinite(largest));
  op_->Sanitize(largest);
  GradientNorm();
}

bool Optimizer::Apply(double lr) {
  ADA_CHECK(norm_ >= 0 && std::isfinite(norm_));
  backend::UpdateStep step;
  step.lr = lr;
  step.gradient_factor = ClipFactor(norm_, clip_norm_);
  step.count = updates_ + 1;
  op_->Apply(step);
  ++updates_;
  norm_ = -1;
  return step.gradient_factor < 1;
}

void Optimizer::set_updates(std::int64_t updates) {
  ADA_CHECK(updates >= 0);
  updates_ = updates;
}

double ClipFactor(double norm, double max_norm) {
  return max_norm > 0 ? std::min(1.0, max_norm / (norm + 1e-6)) : 1.0;
}

}  // namespace ada::optim
