// What update_op.cpp asks of others. How the results of an update are kept: masters in a format,
// with what rounding took from them, and states in formats or in codes of few bits. And the updates
// that look at a parameter as a whole: Adafactor (rows and columns of its matrices), Muon (its
// momentum, made orthogonal), Lamb and StableAdamW (the length of a step). They compute base and
// step of every weight. Sums are taken in a fixed order, whatever the number of threads.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/plan/bf16_matmul.h"
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

  // Whether nothing is rounded, so that the rule may write in place.
  bool plain() const { return plain_; }
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
  void Keep(const ComputedStretch& computed, std::uint64_t seed, std::uint64_t draw,
            ParameterCounts* counts) const;

 private:
  float NewMaster(float base, float step, std::int64_t i, const UpdateRounding& how,
                  float* rest) const;
  void KeepState(std::size_t state, const ComputedStretch& computed, const UpdateRounding& how,
                 ParameterCounts* counts) const;
  void CountPairs(const ComputedStretch& computed, ParameterCounts* counts) const;

  UpdateRule rule_;
  UpdateSlot slot_;
  bool plain_ = true;
  std::int64_t block_ = 1;
  std::optional<NumberGrid> arithmetic_;
  NumberGrid masters_;
  std::array<float*, kMostStates> states_ = {}, scales_ = {};
  std::array<StateStorage, kMostStates> kept_ = {};
  std::array<NumberGrid, kMostStates> grids_ = {};
  std::array<std::optional<StateCoder>, kMostStates> coders_ = {};
  int denominator_ = -1;  // the state that divides state1; below 0: none
};

// One parameter: its masters and where base and step go, n values each; `state`: the new values of
// state1 where it has one for each weight (muon). The other states are replaced in place.
struct MatrixUpdate {
  const UpdateRule* rule = nullptr;
  const UpdateSlot* slot = nullptr;
  UpdateStep step = {};  // its rate is the slot's
  const NumberGrid* arithmetic = nullptr;
  const float* master = nullptr;
  float *base = nullptr, *change = nullptr, *state = nullptr;
};

// Shazeer and Stern, 2018, as torch/optim/_adafactor.py has it.
void Adafactor(const Context& context, const MatrixUpdate& update);

// The step of Lamb or StableAdamW from its direction in `change` (update_kinds.h) and the new means
// of squares: that of Lamb is as long as a share of the weights' norm (at most 10), that of
// StableAdamW has the rate divided by the root mean square of gradient / root, where above 1; base
// decays by the rate that is left.
void ScaleDirection(const Context& context, const MatrixUpdate& update, const float* squares);

// What Newton-Schulz keeps from matrix to matrix; memory grows to the largest.
struct NewtonSchulzMemory {
  std::vector<float> x, transposed, gram, polynomial, product;
  std::vector<float> reference;                        // the result in fp32, where it is counted
  std::vector<BlockStats> blocks;                      // of rows
  std::vector<std::int16_t> a_exponents, b_exponents;  // of factors that an accumulator adds
  std::vector<std::uint16_t> a_bf16, b_bf16;           // factors of products in bf16
  // Those products by their rows, columns and terms.
  std::map<std::array<std::int64_t, 3>, std::unique_ptr<Bf16Matmul>> bf16_matmuls;
};
// Jordan et al., 2024, as torch/optim/_muon.py has it. stats: null: nothing is counted.
void Muon(const Context& context, const MatrixUpdate& update, NewtonSchulzMemory& memory,
          NewtonSchulzStats* stats);

// The orthogonal factor of a matrix [rows, columns], approximately: `steps` of the iteration
// X = a X + (b A + c A A) X, A = X X^T, from X / |X|; each product is rounded to the rule's
// ns_format, its sums are fp32 or as its ns_sums makes them. In place. stats: see Muon; its mse and
// sqnr_db are not set.
void NewtonSchulz(const Context& context, const UpdateRule& rule, std::int64_t rows,
                  std::int64_t columns, float* matrix, NewtonSchulzMemory& memory,
                  NewtonSchulzStats* stats = nullptr);

}  // namespace ada::backend::cpu
