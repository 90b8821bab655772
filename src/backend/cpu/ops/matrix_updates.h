// Updates that look at a parameter as a whole: Adafactor (rows and columns of its matrices), Muon
// (its momentum, made orthogonal), Lamb and StableAdamW (the length of a step). They compute base
// and step of every weight; kept_update.h keeps them. Sums are taken in a fixed order, whatever the
// number of threads.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/kernels.h"
#include "backend/update_rules.h"

namespace ada::backend::cpu {

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

// The memory of Newton-Schulz, which grows to the largest matrix.
struct NewtonSchulzMemory {
  std::vector<float> x, transposed, gram, polynomial, product;
  std::vector<float> reference;                        // the result in fp32, where it is counted
  std::vector<BlockStats> blocks;                      // of rows
  std::vector<std::int16_t> a_exponents, b_exponents;  // of factors that an accumulator adds
  std::vector<std::uint16_t> a_bf16, b_bf16;           // factors of products in bf16
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
