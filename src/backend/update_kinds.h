// The update of one weight under the kinds that look at each value alone, besides SGD and Adam
// (update_rules.h): in the order of operations of torch.optim's single-tensor path, of
// lion-pytorch, torch-optimi and pytorch-optimizer. Plain inline functions of a weight, its
// gradient and its states. `static`: kernels compiled for several instruction sets must each keep
// their own copy.
#pragma once
#include <cmath>

#include "backend/update_rules.h"

namespace ada::backend {

// The states of one weight in the order of optim/states.h.
struct WeightStates {
  float a = 0, b = 0, c = 0;
};

// Chen et al., 2023 (lion-pytorch): the sign of an average. a: exp_avg.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms LionTerms(const UpdateScalars& s, const R& r, float value,
                                                    float gradient, WeightStates& w) {
  gradient = r(gradient * s.gradient_factor);
  value = Shrunk(s, r, value);
  // torch-optimi interpolates, lion-pytorch multiplies and adds.
  const bool lerp = !s.corrected;
  const float mixed = lerp ? r.Lerp(w.a, gradient, s.one_minus_beta1)
                           : r(r(w.a * s.beta1) + r.Factor(s.one_minus_beta1) * gradient);
  w.a = lerp ? r.Lerp(w.a, gradient, s.one_minus_beta2)
             : r(r(w.a * s.beta2) + r.Factor(s.one_minus_beta2) * gradient);
  const float sign = mixed > 0 ? 1.0f : mixed < 0 ? -1.0f : mixed;
  return {value, r.Factor(s.minus_lr) * sign};
}

// torch/optim/rmsprop.py. a: square_avg, b: momentum_buffer, c: grad_avg.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms RmspropTerms(const UpdateScalars& s, const R& r,
                                                       float value, float gradient,
                                                       WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  w.a = r.AddProduct(r(w.a * s.beta2), s.one_minus_beta2 * gradient, gradient);
  float square = w.a;
  if (s.centered) {
    w.c = r.Lerp(w.c, gradient, s.one_minus_beta2);
    square = r.AddProduct(square, -w.c, w.c);
  }
  const float root = r(r(std::sqrt(square)) + r.Factor(s.epsilon));
  if (s.momentum == 0) return {value, (s.minus_lr * gradient) / root};
  w.b = r(r(w.b * s.momentum) + gradient / root);
  return {value, r.Factor(s.minus_lr) * w.b};
}

// torch/optim/nadam.py. a: exp_avg, b: exp_avg_sq.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms NadamTerms(const UpdateScalars& s, const R& r,
                                                     float value, float gradient, WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  value = Shrunk(s, r, value);
  MeanAndSquare(s, r, gradient, w.a, w.b);
  const float root = r(r(std::sqrt(r(w.b / s.correction2))) + r.Factor(s.epsilon));
  value = r(value + (s.minus_gradient_step * gradient) / root);
  return {value, (s.minus_step_size * w.a) / root};
}

// torch/optim/radam.py. a: exp_avg, b: exp_avg_sq.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms RadamTerms(const UpdateScalars& s, const R& r,
                                                     float value, float gradient, WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  value = Shrunk(s, r, value);
  MeanAndSquare(s, r, gradient, w.a, w.b);
  float step = r(r(w.a / s.correction1) * s.minus_lr);
  if (s.rectified) {
    const float root = r(r(std::sqrt(w.b)) + r.Factor(s.epsilon));
    // torch divides a number by a tensor as the product with its reciprocal.
    step = r(r(step * r(r(1 / root) * s.sqrt_correction2)) * s.rectification);
  }
  return {value, step};
}

// torch/optim/adagrad.py. a: sum.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms AdagradTerms(const UpdateScalars& s, const R& r,
                                                       float value, float gradient,
                                                       WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  w.a = r(w.a + gradient * gradient);
  return {value, (s.minus_lr * gradient) / r(r(std::sqrt(w.a)) + r.Factor(s.epsilon))};
}

// torch/optim/adamax.py. a: exp_avg, b: exp_inf.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms AdamaxTerms(const UpdateScalars& s, const R& r,
                                                      float value, float gradient,
                                                      WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  w.a = r.Lerp(w.a, gradient, s.one_minus_beta1);
  const float old = r(w.b * s.beta2), now = r(r(std::fabs(gradient)) + r.Factor(s.epsilon));
  w.b = old < now ? now : old;
  return {value, (s.minus_step_size * w.a) / w.b};
}

// Adam with amsgrad. a: exp_avg, b: exp_avg_sq, c: max_exp_avg_sq.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms AmsgradTerms(const UpdateScalars& s, const R& r,
                                                       float value, float gradient,
                                                       WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  value = Shrunk(s, r, value);
  MeanAndSquare(s, r, gradient, w.a, w.b);
  w.c = w.c < w.b ? w.b : w.c;
  float root = r(std::sqrt(w.c));
  if (s.corrected) root = r(root / s.sqrt_correction2);
  return {value, (s.minus_step_size * w.a) / r(root + r.Factor(s.epsilon))};
}

// Defazio et al., 2024, as pytorch-optimizer's ScheduleFreeAdamW has it; the weight is y, the point
// at which gradients are taken. a: z, b: exp_avg_sq.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms ScheduleFreeTerms(const UpdateScalars& s, const R& r,
                                                            float value, float gradient,
                                                            WeightStates& w) {
  const float z = s.first ? value : w.a;
  gradient = r(gradient * s.gradient_factor);
  w.b = r.AddProduct(r(w.b * s.beta2), s.one_minus_beta2 * gradient, gradient);
  // Its square root is never below that of 1e-15.
  const float root = r(std::sqrt(r(r(w.b / s.correction2) + 1e-15f)));
  gradient = r(gradient / r(root + r.Factor(s.epsilon)));
  if (s.weight_decay != 0) gradient = r(gradient + s.weight_decay * value);
  const float base = r.Lerp(value, z, s.averaging);
  w.a = r(z + s.minus_lr * gradient);
  return {base, s.minus_step_size * gradient};
}

// Taniguchi et al., 2024 (pytorch-optimizer's ADOPT): the gradient is normalized by the mean square
// before it, and the first only starts that. a: exp_avg, b: exp_avg_sq.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms AdoptTerms(const UpdateScalars& s, const R& r,
                                                     float value, float gradient, WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  const float square = gradient * gradient, root = r(std::sqrt(w.b));
  const float normalized = r(gradient / (root < s.epsilon ? s.epsilon : root));
  const float low = normalized < -s.most ? -s.most : normalized;
  const float mean = r.Lerp(w.a, low > s.most ? s.most : low, s.one_minus_beta1);
  w.a = s.first ? w.a : mean;
  w.b = s.first ? r(w.b + square) : r(r(w.b * s.beta2) + s.one_minus_beta2 * square);
  return {value, s.first ? 0.0f : r.Factor(s.minus_lr) * w.a};
}

// Pagliardini et al., 2024 (pytorch-optimizer's AdEMAMix, constant mix and beta3). a: exp_avg, b:
// exp_avg_sq, c: exp_avg_slow.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms AdemamixTerms(const UpdateScalars& s, const R& r,
                                                        float value, float gradient,
                                                        WeightStates& w) {
  gradient = DecayedGradient(s, r, value, gradient);
  MeanAndSquare(s, r, gradient, w.a, w.b);
  w.c = r.Lerp(w.c, gradient, s.one_minus_beta3);
  const float root = r(r(r(std::sqrt(w.b)) / s.sqrt_correction2) + r.Factor(s.epsilon));
  const float mean = r(r(w.a / s.correction1) + r.Factor(s.mix) * w.c);
  return {value, (s.minus_lr * mean) / root};
}

// The direction that Muon makes orthogonal, from its momentum (torch/optim/_muon.py). a:
// momentum_buffer.
template <class R>
ADA_HOST_DEVICE static inline float MuonDirection(const UpdateScalars& s, const R& r,
                                                  float gradient, WeightStates& w) {
  gradient = r(gradient * s.gradient_factor);
  w.a = r.Lerp(w.a, gradient, s.one_minus_beta1);
  return s.nesterov ? r.Lerp(gradient, w.a, s.momentum) : w.a;
}

// The direction of a step whose length depends on the whole tensor (cpu/ops/matrix_updates.h): of
// You et al., 2019 (pytorch-optimizer's Lamb), and of Wortsman et al., 2023 (torch-optimi's
// StableAdamW, whose decays are corrected). a: exp_avg, b: exp_avg_sq.
template <class R>
ADA_HOST_DEVICE static inline UpdateTerms DirectionTerms(const UpdateScalars& s, const R& r,
                                                         bool lerps, float value, float gradient,
                                                         WeightStates& w) {
  gradient = r(gradient * s.gradient_factor);
  w.a = lerps ? r.Lerp(w.a, gradient, s.one_minus_beta1)
              : r(r(w.a * s.beta1) + r.Factor(s.one_minus_beta1) * gradient);
  w.b = r.AddProduct(r(w.b * s.beta2), s.one_minus_beta2 * gradient, gradient);
  return {Shrunk(s, r, value), r(w.a / r(r(std::sqrt(w.b)) + r.Factor(s.epsilon)))};
}

// The terms of any of these kinds and of update_rules.h's, of muon its direction alone; kKind is
// not adafactor.
template <UpdateRule::Kind kKind, class R>
ADA_HOST_DEVICE static inline UpdateTerms TermsOf(const UpdateScalars& s, const R& r, bool momentum,
                                                  float value, float gradient, WeightStates& w) {
  using Kind = UpdateRule::Kind;
  if constexpr (kKind == Kind::kSgd) {
    return momentum ? SgdMomentumTerms(s, value, gradient, w.a, r)
                    : SgdTerms(s, value, gradient, r);
  } else if constexpr (kKind == Kind::kLion) {
    return LionTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kRmsprop) {
    return RmspropTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kNadam) {
    return NadamTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kRadam) {
    return RadamTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kAdagrad) {
    return AdagradTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kAdamax) {
    return AdamaxTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kScheduleFree) {
    return ScheduleFreeTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kAdopt) {
    return AdoptTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kAdemamix) {
    return AdemamixTerms(s, r, value, gradient, w);
  } else if constexpr (kKind == Kind::kMuon) {
    return {value, MuonDirection(s, r, gradient, w)};
  } else if constexpr (kKind == Kind::kLamb || kKind == Kind::kStableAdamW) {
    return DirectionTerms(s, r, kKind == Kind::kStableAdamW, value, gradient, w);
  } else {
    return s.amsgrad ? AmsgradTerms(s, r, value, gradient, w)
                     : AdamTerms(s, value, gradient, w.a, w.b, r);
  }
}

}  // namespace ada::backend
