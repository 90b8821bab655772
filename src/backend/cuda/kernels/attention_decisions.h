// The decisions of attention's four alphas, the moments that they look at, and decisions that the
// launch makes which takes the moments of dy.
#pragma once
#include <cstdint>

#include "backend/attention_formulas.h"
#include "backend/communicators.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "scaling/rules/rules.h"

namespace ada::backend::cuda {

// One of attention's four decisions (backend/attention_formulas.h), and the moments that they look
// at where several processes share the batch. Once. Moments are read where the rule looks at them.
// `gradient` are the moments of what is multiplied (dy or ds), `factor` those of the other operand.
// Without a scaler the scale is passed on.
struct DecideWithin {
  ADA_HOST_DEVICE void Decide() const {
    if (scaler == nullptr) {
      *scale_out = *scale_in;
      return;
    }
    scaling::Observation seen;
    if (scaling::NeedsOf(*scaler).moments) {
      TensorMoments other = *factor;
      if (more != nullptr) other = ProductMoments(other, *more);
      if (times != 1) other = Times(other, times);
      seen = ObservationOf(*gradient, other);
    }
    scaling::Decide(*scaler, seen, *scale_in);
    if (scale_out != nullptr) *scale_out = scaler->decision.scale_out;
  }
  scaling::LayerScaler* scaler;
  const TensorMoments *gradient, *factor, *more;  // more: times the factor; null: it is alone
  double times;
  const float* scale_in;
  float* scale_out;
};
// Two decisions that do not look at each other, in the stream's order, so that the host waits for
// nothing. One block: the last of the launch that takes their moments.
struct DecideBothKernel {
  static constexpr int kThreads = 32, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (at.thread < 2) of[at.thread].Decide();
  }
  DecideWithin of[2];
};

// What the last block of the launch that takes the moments of dy decides: of a layer that looks at
// these moments alone, or dv and ds of an attention.
struct DecideNextKernel {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (layer.scaler == nullptr) {
      if (at.thread < 2) within.of[at.thread].Decide();
    } else if (at.thread == 0) {
      layer.Decide();
    }
  }
  DecideByMoments layer{};  // without a scaler: `within`
  DecideBothKernel within{};
};

// Moments of tensors of the batch, each with the number of values in this process.
struct MomentsHere {
  static constexpr int kMost = 3;
  const TensorMoments* of[kMost];  // null: of nothing
  double values[kMost];
};
// For all of kMost.
// Writes this process's part to memory that is gathered from all.
struct PutMoments {
  ADA_HOST_DEVICE void operator()(std::int64_t k) const {
    if (here.of[k] != nullptr) parts[k] = {*here.of[k], here.values[k]};
  }
  MomentsHere here;
  MomentsPart* parts;
};
// After the gathering: every process computes the same from the same parts.
struct JoinMomentsOfAll {
  ADA_HOST_DEVICE void operator()(std::int64_t k) const {
    if (here.of[k] == nullptr) return;
    to[k] = JoinedMoments(ranks, [this, k](int rank) -> const MomentsPart& {
      return parts[rank * MomentsHere::kMost + k];
    });
  }
  MomentsHere here;
  const MomentsPart* parts;  // of each process kMost
  int ranks;
  TensorMoments* to;
};

}  // namespace ada::backend::cuda
