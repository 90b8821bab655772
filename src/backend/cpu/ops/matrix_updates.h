// Updates that look at a parameter as a whole: Adafactor (rows and columns of its matrices) and
// Muon (its momentum, made orthogonal). They compute base and step of every weight; kept_update.h
// keeps them. Sums are taken in a fixed order, whatever the number of threads.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
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

// The memory of Newton-Schulz, which grows to the largest matrix.
struct NewtonSchulzMemory {
  std::vector<float> x, transposed, gram, polynomial, product;
};
// Jordan et al., 2024, as torch/optim/_muon.py has it.
void Muon(const Context& context, const MatrixUpdate& update, NewtonSchulzMemory& memory);

// The orthogonal factor of a matrix [rows, columns], approximately: `steps` of the iteration
// X = a X + (b A + c A A) X, A = X X^T, from X / |X|; each product is rounded to the rule's
// ns_format, its sums are fp32. In place.
void NewtonSchulz(const Context& context, const UpdateRule& rule, std::int64_t rows,
                  std::int64_t columns, float* matrix, NewtonSchulzMemory& memory);

}  // namespace ada::backend::cpu
