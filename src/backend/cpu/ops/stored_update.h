// How the results of an update are kept: masters in a format, with what rounding took from them,
// and states in formats or in codes of few bits.
#pragma once
#include <array>
#include <cstdint>
#include <optional>

#include "backend/cpu/kernels.h"
#include "backend/cpu/update_args.h"
#include "backend/state_maps.h"
#include "backend/update_rounding.h"
#include "backend/update_rules.h"

namespace ada::backend::cpu {

// What a rule computed for values first .. first + n of a parameter: the new weight is base + step.
// A state that the parameter does not have by value is null.
struct ComputedStretch {
  std::int64_t first = 0, n = 0;
  const float *base = nullptr, *step = nullptr;
  std::array<const float*, kMostStates> states = {};
  // The largest magnitudes of states that have one scale for the tensor.
  std::array<float, kMostStates> largest = {};
};

// One parameter and how it is kept. Different stretches may be kept at the same time.
class StoredParameter {
 public:
  StoredParameter(const UpdateRule& rule, const UpdateSlot& slot);

  // Whether nothing is rounded.
  bool plain() const { return plain_; }
  // Whether the rule may write in place, and how its results are kept then (null: as computed).
  bool in_place() const { return in_place_; }
  const KeptInPlace* kept_in_place() const { return plain_ || arithmetic_ ? nullptr : &kept_in_; }
  // Whether a state has one scale for the whole tensor: then no stretch is kept before all are
  // computed.
  bool needs_whole(std::size_t state) const {
    return coders_[state] && kept_[state].scaling == StateStorage::Scaling::kTensor;
  }
  bool needs_whole() const {
    bool any = false;
    for (std::size_t i = 0; i < kMostStates; ++i) any = any || needs_whole(i);
    return any;
  }
  // A stretch begins at a multiple of it, and ends at one or at the end of the tensor.
  std::int64_t block() const { return block_; }
  // The grid of each operation; null: fp32.
  const NumberGrid* arithmetic() const { return arithmetic_ ? &*arithmetic_ : nullptr; }
  // The states that have a value for each weight, where the rule has them; else null.
  const std::array<float*, kMostStates>& states() const { return states_; }

  // The masters as the rule reads them: with the low bits that are kept apart.
  void Load(std::int64_t first, std::int64_t n, float* master) const;
  // Rounds and stores; counts where `counts` is given.
  void Keep(const Kernels& kernels, const ComputedStretch& computed, std::uint64_t seed,
            std::uint64_t draw, ParameterCounts* counts) const;

 private:
  // The format of a state that is not kept in scaled codes.
  const NumberFormat& FormatOf(std::size_t state) const {
    return kept_[state].is_scaled() ? kFp32 : kept_[state].format;
  }
  float NewMaster(float base, float step, std::int64_t i, const UpdateRounding& how,
                  float* rest) const;
  void KeepMasters(const ComputedStretch& computed, const UpdateRounding& how,
                   ParameterCounts* counts) const;
  void KeepState(const Kernels& kernels, std::size_t state, const ComputedStretch& computed,
                 const UpdateRounding& how, ParameterCounts* counts) const;
  void CountPairs(const ComputedStretch& computed, ParameterCounts* counts) const;

  UpdateRule rule_;
  UpdateSlot slot_;
  bool plain_ = true, in_place_ = true;
  KeptInPlace kept_in_;
  std::int64_t block_ = 1;
  std::optional<NumberGrid> arithmetic_;
  NumberGrid masters_;
  std::array<float*, kMostStates> states_ = {}, scales_ = {};
  std::array<StateStorage, kMostStates> kept_ = {};
  std::array<NumberGrid, kMostStates> grids_ = {};
  std::array<std::optional<StateCoder>, kMostStates> coders_ = {};
  int denominator_ = -1;  // the state that divides state1; below 0: none
};

}  // namespace ada::backend::cpu
