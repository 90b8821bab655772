// The update of one weight by one gradient, as plain inline functions that every backend's kernels
// call: SGD with momentum, Adam and AdamW in the order of fp32 operations of torch.optim's
// single-tensor path (torch/optim/sgd.py, adam.py). Knows no tensors and no loops. `static`:
// kernels compiled for several instruction sets must each keep their own copy.
#pragma once
#include <cmath>

#include "backend/update.h"
#include "number/host_device.h"

namespace ada::backend {

// The scalars of one update, each computed in double and rounded to fp32 once, as torch rounds
// the Python numbers that it gives to its kernels. For slots without weight decay see
// WithoutDecay.
struct UpdateScalars {
  float gradient_factor = 1;  // clipping
  float weight_decay = 0;     // 0: not added at all (sgd, adam)
  float keep = 1;             // 1 - lr * weight_decay (adamw)
  float minus_lr = 0;
  float momentum = 0;
  float undamped = 1;  // 1 - dampening
  bool first = false;  // first update: the momentum buffer becomes the gradient itself
  bool nesterov = false;
  bool steps = false;  // the buffer gathers steps
  float one_minus_beta1 = 0;
  float beta2 = 0, one_minus_beta2 = 0;
  float minus_step_size = 0;   // -lr / (1 - beta1^count)
  float sqrt_correction2 = 1;  // sqrt(1 - beta2^count)
  float epsilon = 0;
};

// The factor of torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); 1 for max_norm 0.
ADA_HOST_DEVICE static inline double ClipFactor(double norm, double max_norm) {
  const double factor = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}

// Host only (it calls pow); step.count counts from 1.
static inline UpdateScalars MakeUpdateScalars(const UpdateRule& rule, const UpdateStep& step) {
  const double count = static_cast<double>(step.count);
  UpdateScalars s;
  s.gradient_factor = static_cast<float>(step.gradient_factor);
  if (rule.kind == UpdateRule::Kind::kAdamW) {
    s.keep = static_cast<float>(1 - step.lr * rule.weight_decay);
  } else {
    s.weight_decay = static_cast<float>(rule.weight_decay);
  }
  s.minus_lr = static_cast<float>(-step.lr);
  s.momentum = static_cast<float>(rule.momentum);
  s.first = step.count == 1;
  s.nesterov = rule.nesterov;
  s.undamped = static_cast<float>(1 - rule.dampening);
  s.steps = rule.velocity == UpdateRule::Velocity::kSteps;
  s.one_minus_beta1 = static_cast<float>(1 - rule.beta1);
  s.beta2 = static_cast<float>(rule.beta2);
  s.one_minus_beta2 = static_cast<float>(1 - rule.beta2);
  s.minus_step_size = static_cast<float>(-(step.lr / (1 - std::pow(rule.beta1, count))));
  s.sqrt_correction2 = static_cast<float>(std::sqrt(1 - std::pow(rule.beta2, count)));
  s.epsilon = static_cast<float>(rule.epsilon);
  return s;
}

// The same scalars for a slot whose `decay` is 0.
static inline UpdateScalars WithoutDecay(UpdateScalars s) {
  s.weight_decay = 0;
  s.keep = 1;
  return s;
}

// The scalars of a slot with these factors.
static inline UpdateScalars MakeUpdateScalars(UpdateRule rule, UpdateStep step, double lr_factor,
                                              double decay_factor) {
  rule.weight_decay *= decay_factor;
  step.lr *= lr_factor;
  return MakeUpdateScalars(rule, step);
}

// The new weight is base + step.
struct UpdateTerms {
  float base, step;
  ADA_HOST_DEVICE float sum() const { return base + step; }
};

// SGD without momentum.
ADA_HOST_DEVICE static inline UpdateTerms SgdTerms(const UpdateScalars& s, float value,
                                                   float gradient) {
  gradient *= s.gradient_factor;
  if (s.weight_decay != 0) gradient = gradient + s.weight_decay * value;
  return {value, s.minus_lr * gradient};
}
ADA_HOST_DEVICE static inline float SgdUpdate(const UpdateScalars& s, float value, float gradient) {
  return SgdTerms(s, value, gradient).sum();
}

// SGD with momentum; `buffer` (state1) is updated. Where it gathers steps: Chainer's MomentumSGD
// and NesterovAG.
ADA_HOST_DEVICE static inline UpdateTerms SgdMomentumTerms(const UpdateScalars& s, float value,
                                                           float gradient, float& buffer) {
  gradient *= s.gradient_factor;
  if (s.weight_decay != 0) gradient = gradient + s.weight_decay * value;
  if (s.steps) {
    const float step = s.minus_lr * gradient;
    buffer = buffer * s.momentum + step;
    return {value, s.nesterov ? s.momentum * buffer + step : buffer};
  }
  buffer = s.first           ? gradient
           : s.undamped == 1 ? buffer * s.momentum + gradient
                             : buffer * s.momentum + s.undamped * gradient;
  gradient = s.nesterov ? gradient + s.momentum * buffer : buffer;
  return {value, s.minus_lr * gradient};
}
ADA_HOST_DEVICE static inline float SgdMomentumUpdate(const UpdateScalars& s, float value,
                                                      float gradient, float& buffer) {
  return SgdMomentumTerms(s, value, gradient, buffer).sum();
}

// Adam and AdamW; `average` (state1) and `square` (state2) are updated. The two differ only in
// their scalars: Adam adds weight_decay to the gradient, AdamW shrinks the weight.
ADA_HOST_DEVICE static inline UpdateTerms AdamTerms(const UpdateScalars& s, float value,
                                                    float gradient, float& average, float& square) {
  gradient *= s.gradient_factor;
  if (s.weight_decay != 0) gradient = gradient + s.weight_decay * value;
  if (s.keep != 1) value *= s.keep;
  // torch's lerp starts from the nearer end.
  const float difference = gradient - average;
  average = s.one_minus_beta1 < 0.5f ? average + s.one_minus_beta1 * difference
                                     : gradient - difference * (1 - s.one_minus_beta1);
  square = square * s.beta2 + (s.one_minus_beta2 * gradient) * gradient;
  const float denominator = std::sqrt(square) / s.sqrt_correction2 + s.epsilon;
  return {value, (s.minus_step_size * average) / denominator};
}
ADA_HOST_DEVICE static inline float AdamUpdate(const UpdateScalars& s, float value, float gradient,
                                               float& average, float& square) {
  return AdamTerms(s, value, gradient, average, square).sum();
}

// --- Running averages ---

// The factors of a running average, which is torch's lerp: it starts from the nearer end.
struct AverageScalars {
  float keep = 0, take = 1;  // of the average and of the value; together 1
};
static inline AverageScalars MakeAverageScalars(double keep) {
  return {static_cast<float>(keep), static_cast<float>(1 - keep)};
}
ADA_HOST_DEVICE static inline float Averaged(const AverageScalars& s, float average, float value) {
  const float difference = value - average;
  return s.take < 0.5f ? average + s.take * difference : value - difference * s.keep;
}

}  // namespace ada::backend
