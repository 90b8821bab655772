// The update of all parameters at once, decided where the gradients are: their norm and largest
// magnitude, whether they are finite, whether watched roundings are, the clipping factor, and what
// follows. Parameters are cut
// into segments, a block of threads each; sums over a segment and over segments are in double, in
// an order fixed by the lengths alone.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/backend.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/update_rounding.h"

namespace ada::backend::cuda {

// A span of one parameter.
// The table is made once and stays in backend memory: parameters never move.
struct UpdateSegment {
  static constexpr std::int64_t kValues = 2048;
  float *value, *gradient, *state1, *state2;
  std::int32_t count;
  std::int32_t group;    // of its scalars
  std::uint64_t stream;  // of its slot
  std::int64_t first;    // its first value, of the slot's
};

// What one call brings, in memory: launches of later calls look alike. After it lie the scalars of
// the groups, but for gradient_factor.
struct alignas(16) UpdateInputs {
  UpdateRounding rounding;
  double clip_norm = 0;
  float sanitize_to = 0, nan_to = 0;
  bool largest = false, sanitize = false, only_nonfinite = false;
  ADA_HOST_DEVICE const UpdateScalars& scalars(int group) const {
    return reinterpret_cast<const UpdateScalars*>(this + 1)[group];
  }
};

// What roundings and gradients decided.
// Written on the device and read there: the host learns of it with the step's other results.
struct UpdateDecision {
  float factor;  // clipping
  bool apply;
  bool left;  // a watched rounding its format, since the last decision
};

// One block: whether a watched rounding left its format in the last backward pass.
// A NaN compares false with `most`, so that it counts as having left.
struct LookAtRoundings {
  static constexpr int kThreads = 256, kPhases = 2;
  struct Shared {
    bool left[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      bool left = false;
      for (int i = at.thread; i < count; i += kThreads)
        left |= !(watched[i].stats->max_abs <= watched[i].most);
      shared.left[at.thread] = left;
    } else if (at.thread == 0) {
      for (const bool left : shared.left) decision->left |= left;
    }
  }

  const WatchedRounding* watched = nullptr;
  int count = 0;
  UpdateDecision* decision = nullptr;
};

// Whether one did in any of several processes; `mine` is made ready for the next look.
struct JoinLooks {
  ADA_HOST_DEVICE void operator()(std::int64_t) const {
    for (int rank = 0; rank < ranks; ++rank) decision->left |= looks[rank].left;
    mine->left = false;
  }

  const UpdateDecision* looks;
  int ranks;
  UpdateDecision *mine, *decision;
};

struct GradientFacts {
  double square;
  std::uint32_t max_bits;  // of magnitudes: a NaN is the largest
};

// Facts of the threads of a block, added up 16 by 16.
// The order of additions depends on nothing but the number of threads, so that the norm has the
// same bits in every run.
struct FactsOfThreads {
  static constexpr int kThreads = 256, kGroup = 16, kPhases = 3;  // the first: the threads' own
  GradientFacts own[kThreads], groups[kGroup];

  ADA_HOST_DEVICE static GradientFacts Sum(const GradientFacts* facts) {
    GradientFacts sum{0, 0};
    for (int i = 0; i < kGroup; ++i) Add(sum, facts[i]);
    return sum;
  }
  ADA_HOST_DEVICE static void Add(GradientFacts& to, const GradientFacts& facts) {
    to.square += facts.square;
    if (facts.max_bits > to.max_bits) to.max_bits = facts.max_bits;
  }
  ADA_HOST_DEVICE void SumGroup(int thread) {
    if (thread < kGroup) groups[thread] = Sum(own + thread * kGroup);
  }
};

// Facts of each segment. `again`: of gradients that were sanitized.
// The first kernel of an update; the last of its blocks decides (LastBlockKernel).
struct MeasureGradients {
  static constexpr int kThreads = FactsOfThreads::kThreads, kPhases = FactsOfThreads::kPhases;
  using Shared = FactsOfThreads;
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (again && !outcome->overflow) return;
    if constexpr (kPhase == 0) {
      const UpdateSegment& s = segments[at.block];
      GradientFacts own{0, 0};
      ForEvery(
          at.thread, s.count, kThreads, [&](std::int64_t i) { return s.gradient[i]; },
          [&](std::int64_t, float g) {
            const auto wide = static_cast<double>(g);
            FactsOfThreads::Add(own, {wide * wide, MagnitudeBits(g)});
          });
      shared.own[at.thread] = own;
    } else if constexpr (kPhase == 1) {
      shared.SumGroup(at.thread);
    } else if (at.thread == 0) {
      facts[at.block] = FactsOfThreads::Sum(shared.groups);
    }
  }

  const UpdateSegment* segments = nullptr;
  GradientFacts* facts = nullptr;          // [segments]
  const UpdateOutcome* outcome = nullptr;  // with `again`
  bool again = false;
};

// The outcome and the decision; `again`: the clipping factor anew. By the last block of
// MeasureGradients.
// The norm is infinite or NaN exactly where some gradient is not finite or their squares leave
// double's range.
struct DecideUpdate {
  static constexpr int kThreads = FactsOfThreads::kThreads, kPhases = FactsOfThreads::kPhases;
  using Shared = FactsOfThreads;
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (again && !outcome->overflow) return;
    if constexpr (kPhase == 0) {
      GradientFacts own{0, 0};
      ForEvery(
          at.thread, count, kThreads, [&](std::int64_t i) { return facts[i]; },
          [&](std::int64_t, const GradientFacts& of) { FactsOfThreads::Add(own, of); });
      shared.own[at.thread] = own;
    } else if constexpr (kPhase == 1) {
      shared.SumGroup(at.thread);
    } else if (at.thread == 0) {
      Decide(FactsOfThreads::Sum(shared.groups));
    }
  }

  // With `again`, gradients were sanitized: the outcome stays, and the factor is that of their new
  // norm.
  // A watched rounding that has left its format stops the update even where gradients may be
  // sanitized.
  ADA_HOST_DEVICE void Decide(const GradientFacts& all) const {
    const double norm = std::sqrt(all.square);
    if (!again) Conclude(norm, all.max_bits);
    const bool apply = !outcome->watched && (!outcome->overflow || inputs->sanitize);
    const double factor = ClipFactor(norm, inputs->clip_norm);
    decision->factor = static_cast<float>(factor), decision->apply = apply;
    outcome->updated = apply, outcome->clipped = apply && factor < 1;
    *on_host = *outcome;
  }
  ADA_HOST_DEVICE void Conclude(double norm, std::uint32_t max_bits) const {
    outcome->norm = norm;
    outcome->overflow = !(norm < HUGE_VAL);
    outcome->largest = inputs->largest ? OfBits(max_bits) : 0.0f;
    outcome->watched = decision->left, decision->left = false;
  }

  const GradientFacts* facts = nullptr;
  int count = 0;  // segments
  const UpdateInputs* inputs = nullptr;
  UpdateOutcome* outcome = nullptr;
  UpdateOutcome* on_host = nullptr;  // a copy for the host, in memory of AllocateOnHost
  UpdateDecision* decision = nullptr;
  bool again = false;
};

// NaN become 0, magnitudes above sanitize_to it with their sign: where gradients overflowed. Or
// only values that are not finite change.
struct SanitizeGradients {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (!outcome->overflow) return;
    const UpdateSegment& s = segments[at.block];
    const std::uint32_t most = BitsOf(inputs->sanitize_to);
    for (std::int32_t i = at.thread; i < s.count; i += kThreads)
      s.gradient[i] = inputs->only_nonfinite ? Replaced(s.gradient[i], most, inputs->nan_to)
                                             : Sanitized(s.gradient[i], most);
  }
  ADA_HOST_DEVICE static float Replaced(float x, std::uint32_t inf_to, float nan_to) {
    const std::uint32_t bits = BitsOf(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > kInfinityBits) return nan_to;
    return magnitude == kInfinityBits ? OfBits(inf_to | (bits & 0x80000000u)) : x;
  }
  ADA_HOST_DEVICE static float Sanitized(float x, std::uint32_t most) {
    const std::uint32_t bits = BitsOf(x), magnitude = bits & 0x7fffffffu;
    if (magnitude > kInfinityBits) return 0;
    return magnitude > most ? OfBits(most | (bits & 0x80000000u)) : x;
  }

  const UpdateSegment* segments = nullptr;
  const UpdateInputs* inputs = nullptr;
  const UpdateOutcome* outcome = nullptr;
};

// The last kernel; it does nothing where the update is skipped.
struct ApplyUpdate {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (!decision->apply) return;
    const UpdateSegment& s = segments[at.block];
    UpdateScalars scalars = inputs->scalars(s.group);
    scalars.gradient_factor = decision->factor;
    ForEvery(
        at.thread, s.count, kThreads, [&](std::int64_t i) { return Parameter::Of(s, i); },
        [&](std::int64_t i, Parameter& p) {
          s.value[i] = Updated(scalars, s.state1 != nullptr, p);
          if (s.state1 != nullptr) s.state1[i] = p.state1;
          if (s.state2 != nullptr) s.state2[i] = p.state2;
        });
  }
  struct Parameter {
    float value, gradient, state1, state2;
    ADA_HOST_DEVICE static Parameter Of(const UpdateSegment& s, std::int64_t i) {
      return {s.value[i], s.gradient[i], s.state1 != nullptr ? s.state1[i] : 0,
              s.state2 != nullptr ? s.state2[i] : 0};
    }
  };
  ADA_HOST_DEVICE float Updated(const UpdateScalars& scalars, bool momentum, Parameter& p) const {
    if (adam) return AdamUpdate(scalars, p.value, p.gradient, p.state1, p.state2);
    if (momentum) return SgdMomentumUpdate(scalars, p.value, p.gradient, p.state1);
    return SgdUpdate(scalars, p.value, p.gradient);
  }

  const UpdateSegment* segments = nullptr;
  const UpdateInputs* inputs = nullptr;
  const UpdateDecision* decision = nullptr;
  bool adam = false;
};

// The same if results are stored in fewer bits than fp32, or changes are counted. Counts of the
// threads are combined one part after another, because all parts together do not fit into shared
// memory. Stochastic rounding uses the value's index in its slot, as on a CPU.
struct ApplyRoundedUpdate {
  static constexpr int kThreads = 256, kPhases = 2 * ParameterCounts::kParts;
  struct Shared {
    UpdateCounts counts[kThreads];
  };
  struct Own {
    ParameterCounts counts;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if (!decision->apply) return;
    constexpr int kPart = kPhase / 2;
    if constexpr (kPhase == 0) {
      own.counts = ParameterCounts::Start();
      Apply(at.thread, segments[at.block], counts != nullptr ? &own.counts : nullptr);
    }
    if (counts == nullptr) return;
    if constexpr (kPhase % 2 == 0) {
      shared.counts[at.thread] = own.counts.of[kPart];
    } else if (at.thread == 0) {
      UpdateCounts all = UpdateCounts::Start();
      for (const UpdateCounts& of : shared.counts) all.Merge(of);
      counts[at.block].of[kPart] = all;
    }
  }
  ADA_HOST_DEVICE void Apply(int thread, const UpdateSegment& s, ParameterCounts* own) const {
    UpdateScalars scalars = inputs->scalars(s.group);
    scalars.gradient_factor = decision->factor;
    const bool momentum = s.state1 != nullptr;
    for (std::int32_t i = thread; i < s.count; i += kThreads) {
      WeightAndStates kept{s.value[i], momentum ? s.state1[i] : 0,
                           s.state2 != nullptr ? s.state2[i] : 0};
      UpdateAndRound(scalars, inputs->rounding, adam, momentum, s.stream, s.first + i,
                     s.gradient[i], kept, own);
      s.value[i] = kept.value;
      if (momentum) s.state1[i] = kept.state1;
      if (s.state2 != nullptr) s.state2[i] = kept.state2;
    }
  }

  const UpdateSegment* segments = nullptr;
  const UpdateInputs* inputs = nullptr;
  const UpdateDecision* decision = nullptr;
  ParameterCounts* counts = nullptr;  // [segments]; null: nothing is counted
  bool adam = false;
};

}  // namespace ada::backend::cuda
