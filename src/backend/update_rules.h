// The update of one weight by one gradient, as plain inline functions that every backend's kernels
// call: SGD with momentum, Adam and AdamW in the order of operations of torch.optim's single-tensor
// path (torch/optim/sgd.py, adam.py); update_kinds.h has the others. Knows no tensors and no loops.
// `static`: kernels compiled for several instruction sets must each keep their own copy.
#pragma once
#include <cmath>

#include "backend/update.h"
#include "number/host_device.h"
#include "number/number_grid.h"

namespace ada::backend {

// The scalars of one update, each computed in double and rounded to fp32 once, as torch rounds
// the Python numbers that it gives to its kernels.
struct UpdateScalars {
  float gradient_factor = 1;  // clipping
  float weight_decay = 0;     // 0: not added at all (L2)
  float keep = 1;             // 1 - lr * weight_decay (decoupled)
  float minus_lr = 0;
  float momentum = 0;
  float undamped = 1;  // 1 - dampening
  bool first = false;  // first update: the momentum buffer becomes the gradient itself
  bool nesterov = false;
  bool steps = false;      // the buffer gathers steps
  bool amsgrad = false;    // the largest mean square so far
  bool centered = false;   // rmsprop: the variance, not the mean square
  bool rectified = false;  // radam: by the mean square
  bool corrected = true;   // false: as torch-optimi, which corrects the decays of averages
  // Adam's mean: torch and torchao interpolate. False, where states have few bits: the order of
  // operations of Transformer Engine's FusedAdam (adam.cu), which adds two products.
  bool lerps = true;
  float decoupled_decay = 0;             // weight_decay, where `keep` holds it
  float beta1 = 0, one_minus_beta1 = 0;  // of muon: 1 - momentum
  float beta2 = 0, one_minus_beta2 = 0;
  float minus_step_size = 0;               // -lr / (1 - beta1^count)
  float sqrt_correction2 = 1;              // sqrt(1 - beta2^count)
  float correction1 = 1, correction2 = 1;  // 1 - beta^count
  float epsilon = 0;
  float minus_gradient_step = 0;       // nadam: the factor of the gradient
  float rectification = 1;             // radam
  float averaging = 0;                 // schedule_free: the share of z in the average
  float most = 0;                      // adopt: the largest normalized gradient
  float one_minus_beta3 = 0, mix = 0;  // ademamix
};

// The factor of torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)); 1 for max_norm 0.
ADA_HOST_DEVICE static inline double ClipFactor(double norm, double max_norm) {
  const double factor = max_norm > 0 ? max_norm / (norm + 1e-6) : 1;
  return factor < 1 ? factor : 1;
}

// Whether the decay shrinks the weight, and is not added to the gradient.
inline bool DecoupledDecay(const UpdateRule& rule) {
  using Kind = UpdateRule::Kind;
  const bool chosen = rule.kind == Kind::kNadam || rule.kind == Kind::kRadam;
  return rule.kind == Kind::kAdamW || rule.kind == Kind::kLion || rule.kind == Kind::kAdafactor ||
         rule.kind == Kind::kMuon || rule.kind == Kind::kLamb || rule.kind == Kind::kStableAdamW ||
         (chosen && rule.decoupled_weight_decay);
}

// The scalars of single kinds.
struct KindScalars {
  // Dozat's momentum of a step and of the next (torch/optim/nadam.py). The product of all so far is
  // kept from call to call, since it would take as long as the run has steps.
  static inline void Nadam(const UpdateRule& rule, const UpdateStep& step, UpdateScalars& s) {
    const auto momentum = [&rule](double count) {
      return rule.beta1 * (1 - 0.5 * std::pow(0.96, count * rule.momentum_decay));
    };
    struct Kept {
      double beta1 = 0, decay = 0, product = 1;
      std::int64_t count = 0;
    };
    thread_local Kept kept;
    const bool goes_on = kept.beta1 == rule.beta1 && kept.decay == rule.momentum_decay;
    if (!goes_on || kept.count > step.count) kept = {rule.beta1, rule.momentum_decay, 1, 0};
    while (kept.count < step.count) kept.product *= momentum(static_cast<double>(++kept.count));
    const double product = kept.product;
    const double count = static_cast<double>(step.count);
    const double now = momentum(count), next = momentum(count + 1);
    s.minus_gradient_step = static_cast<float>(-step.lr * (1 - now) / (1 - product));
    s.minus_step_size = static_cast<float>(-step.lr * next / (1 - product * next));
  }
  // The length of the approximated average decides whether its variance is tractable
  // (torch/optim/radam.py).
  static inline void Radam(const UpdateRule& rule, const UpdateStep& step, UpdateScalars& s) {
    const double count = static_cast<double>(step.count), power = std::pow(rule.beta2, count);
    const double most = 2 / (1 - rule.beta2) - 1;
    const double length = most - 2 * count * power / (1 - power);
    s.rectified = length > 5;
    if (s.rectified)
      s.rectification = static_cast<float>(
          std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)));
  }
};

// Host only (it calls pow); step.count counts from 1.
static inline UpdateScalars MakeUpdateScalars(const UpdateRule& rule, const UpdateStep& step) {
  using Kind = UpdateRule::Kind;
  const double count = static_cast<double>(step.count);
  UpdateScalars s;
  s.gradient_factor = static_cast<float>(step.gradient_factor);
  if (DecoupledDecay(rule)) {
    s.keep = static_cast<float>(1 - step.lr * rule.weight_decay);
    s.decoupled_decay = static_cast<float>(rule.weight_decay);
  } else {
    s.weight_decay = static_cast<float>(rule.weight_decay);
  }
  s.minus_lr = static_cast<float>(-step.lr);
  s.momentum = static_cast<float>(rule.momentum);
  s.first = step.count == 1;
  s.nesterov = rule.nesterov, s.amsgrad = rule.amsgrad, s.centered = rule.centered;
  s.undamped = static_cast<float>(1 - rule.dampening);
  s.steps = rule.velocity == UpdateRule::Velocity::kSteps;
  double beta1 = rule.beta1, beta2 = rule.kind == Kind::kRmsprop ? rule.alpha : rule.beta2;
  s.corrected = rule.arithmetic != UpdateRule::Arithmetic::kOptimi;
  const bool adam = rule.kind == Kind::kAdam || rule.kind == Kind::kAdamW;
  if ((adam && !s.corrected) || rule.kind == Kind::kStableAdamW) {
    const auto debiased = [count](double beta) {
      const double power = std::pow(beta, count);
      return (power - beta) / (power - 1);
    };
    beta1 = debiased(beta1), beta2 = debiased(beta2);
  }
  const bool few_bits =
      rule.states != nullptr ? !rule.states->front().whole : rule.state.format != kFp32;
  s.lerps = !few_bits || rule.arithmetic != UpdateRule::Arithmetic::kFp32;
  s.beta1 = static_cast<float>(beta1), s.one_minus_beta1 = static_cast<float>(1 - beta1);
  s.beta2 = static_cast<float>(beta2);
  s.one_minus_beta2 = static_cast<float>(1 - beta2);
  const double correction1 = 1 - std::pow(rule.beta1, count);
  const double correction2 = 1 - std::pow(rule.beta2, count);
  s.correction1 = static_cast<float>(correction1);
  s.correction2 = static_cast<float>(correction2);
  s.minus_step_size = static_cast<float>(s.corrected ? -(step.lr / correction1) : -step.lr);
  s.sqrt_correction2 = static_cast<float>(std::sqrt(correction2));
  s.epsilon = static_cast<float>(rule.epsilon);
  if (rule.kind == Kind::kMuon) s.one_minus_beta1 = static_cast<float>(1 - rule.momentum);
  if (rule.kind == Kind::kNadam) KindScalars::Nadam(rule, step, s);
  if (rule.kind == Kind::kRadam) KindScalars::Radam(rule, step, s);
  s.most = static_cast<float>(std::pow(count, 0.25));
  s.one_minus_beta3 = static_cast<float>(1 - rule.beta3), s.mix = static_cast<float>(rule.mix);
  // The whole tensor decides the decay.
  if (rule.kind == Kind::kStableAdamW) s.keep = 1;
  if (rule.kind == Kind::kAdagrad)
    s.minus_lr = static_cast<float>(-step.lr / (1 + (count - 1) * rule.lr_decay));
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

// Roundings of single operations: of fp32 arithmetic, which makes none, and of arithmetic in a
// format, whose operations are computed in fp32 and rounded (torch's on tensors of 16 bits).
// A factor of an addition and a number that is added are of the tensor's type there. torch
// interpolates, and adds products of two tensors, with a fused multiply-add. All of this is what
// its vectorized kernels do: they compute the last values of a tensor, too few for a vector, with
// more roundings.
struct Unrounded {
  ADA_HOST_DEVICE float operator()(float x) const { return x; }
  ADA_HOST_DEVICE float Factor(float x) const { return x; }
  ADA_HOST_DEVICE float AddProduct(float sum, float x, float y) const { return sum + x * y; }
  ADA_HOST_DEVICE float Lerp(float from, float to, float share) const {
    const float difference = to - from;
    return share < 0.5f ? from + share * difference : to - difference * (1 - share);
  }
};
template <class Rounding>
struct EachRounded {
  Rounding round;
  ADA_HOST_DEVICE float operator()(float x) const { return round(x); }
  ADA_HOST_DEVICE float Factor(float x) const { return round(x); }
  ADA_HOST_DEVICE float AddProduct(float sum, float x, float y) const {
    return round(std::fma(x, y, sum));
  }
  ADA_HOST_DEVICE float Lerp(float from, float to, float share) const {
    const float difference = to - from;
    const bool near = share < 0.5f;
    return round(std::fma(near ? share : share - 1, difference, near ? from : to));
  }
};
struct ToGrid {
  NumberGrid grid;
  ADA_HOST_DEVICE float operator()(float x) const { return RoundToGrid(grid, x); }
};
using RoundedTo = EachRounded<ToGrid>;

// The gradient after clipping and L2 decay, and the weight after decoupled decay.
template <class R>
ADA_HOST_DEVICE static inline float DecayedGradient(const UpdateScalars& s, const R& r, float value,
                                                    float gradient) {
  gradient = r(gradient * s.gradient_factor);
  return s.weight_decay != 0 ? r(gradient + r.Factor(s.weight_decay) * value) : gradient;
}
template <class R>
ADA_HOST_DEVICE static inline float Shrunk(const UpdateScalars& s, const R& r, float value) {
  return s.keep != 1 ? r(value * s.keep) : value;
}
template <class R>
ADA_HOST_DEVICE static inline void MeanAndSquare(const UpdateScalars& s, const R& r, float gradient,
                                                 float& average, float& square) {
  average = s.lerps ? r.Lerp(average, gradient, s.one_minus_beta1)
                    : average * s.beta1 + s.one_minus_beta1 * gradient;
  square = r.AddProduct(r(square * s.beta2), s.one_minus_beta2 * gradient, gradient);
}

// SGD without momentum.
template <class R = Unrounded>
ADA_HOST_DEVICE static inline UpdateTerms SgdTerms(const UpdateScalars& s, float value,
                                                   float gradient, const R& r = {}) {
  gradient = DecayedGradient(s, r, value, gradient);
  return {value, r.Factor(s.minus_lr) * gradient};
}
ADA_HOST_DEVICE static inline float SgdUpdate(const UpdateScalars& s, float value, float gradient) {
  return SgdTerms(s, value, gradient).sum();
}

// SGD with momentum; `buffer` (state1) is updated. Where it gathers steps: Chainer's MomentumSGD
// and NesterovAG.
template <class R = Unrounded>
ADA_HOST_DEVICE static inline UpdateTerms SgdMomentumTerms(const UpdateScalars& s, float value,
                                                           float gradient, float& buffer,
                                                           const R& r = {}) {
  gradient = DecayedGradient(s, r, value, gradient);
  if (s.steps) {
    const float step = r(s.minus_lr * gradient);
    buffer = r(r(buffer * s.momentum) + step);
    return {value, s.nesterov ? r(s.momentum * buffer + step) : buffer};
  }
  buffer = s.first           ? gradient
           : s.undamped == 1 ? r(r(buffer * s.momentum) + gradient)
                             : r(r(buffer * s.momentum) + r.Factor(s.undamped) * gradient);
  gradient = s.nesterov ? r(gradient + r.Factor(s.momentum) * buffer) : buffer;
  return {value, r.Factor(s.minus_lr) * gradient};
}
ADA_HOST_DEVICE static inline float SgdMomentumUpdate(const UpdateScalars& s, float value,
                                                      float gradient, float& buffer) {
  return SgdMomentumTerms(s, value, gradient, buffer).sum();
}

// Adam and AdamW; `average` (state1) and `square` (state2) are updated. The two differ only in
// their scalars: Adam adds weight_decay to the gradient, AdamW shrinks the weight (FusedAdam: adds
// it to the step).
template <class R = Unrounded>
ADA_HOST_DEVICE static inline UpdateTerms AdamTerms(const UpdateScalars& s, float value,
                                                    float gradient, float& average, float& square,
                                                    const R& r = {}) {
  gradient = DecayedGradient(s, r, value, gradient);
  if (!s.lerps) {
    MeanAndSquare(s, r, gradient, average, square);
    const float denominator = std::sqrt(square / s.correction2) + s.epsilon;
    const float update = average / s.correction1 / denominator + s.decoupled_decay * value;
    return {value, s.minus_lr * update};
  }
  value = Shrunk(s, r, value);
  MeanAndSquare(s, r, gradient, average, square);
  float root = r(std::sqrt(square));
  if (s.corrected) root = r(root / s.sqrt_correction2);
  return {value, (s.minus_step_size * average) / r(root + r.Factor(s.epsilon))};
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
