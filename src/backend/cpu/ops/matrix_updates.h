// Updates that look at a parameter as a whole: Adafactor (rows and columns of its matrices), Muon
// (its momentum, made orthogonal), Lamb and StableAdamW (the length of a step). Sums are taken in a
// fixed order, whatever the number of threads.
#pragma once
#include <cstdint>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/newton_schulz.h"
#include "backend/update_rules.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {

// One parameter and what is found of its update: the new weight is keep * base + factor * change.
struct MatrixUpdate {
  const UpdateRule* rule = nullptr;
  const UpdateSlot* slot = nullptr;
  UpdateStep step = {};  // its rate is the slot's
  const NumberGrid* arithmetic = nullptr;
  const float* base = nullptr;  // the masters; of Lamb and StableAdamW those that the rule decayed
  float* change = nullptr;      // n values: written, or (Lamb and StableAdamW) the direction
  // Muon: state1, which is replaced, or a copy of it. Adafactor: memory for n values.
  float* state = nullptr;
  // Results.
  float keep = 1, factor = 1;
  bool rounds_base = false, rounds_change = false;  // either product, before they are added
};

// Shazeer and Stern, 2018, as torch/optim/_adafactor.py has it. Its states are replaced in place.
void Adafactor(const Context& context, MatrixUpdate& update);

// The step of Lamb or StableAdamW from its direction in `change` (update_kinds.h) and the new means
// of squares: that of Lamb is as long as a share of the weights' norm (at most 10), that of
// StableAdamW has the rate divided by the root mean square of gradient / root, where above 1; base
// decays by the rate that is left.
void ScaleDirection(const Context& context, const float* squares, MatrixUpdate& update);

// Jordan et al., 2024, as torch/optim/_muon.py has it. stats: null: nothing is counted.
void Muon(const Context& context, MatrixUpdate& update, NewtonSchulzMemory& memory,
          NewtonSchulzStats* stats);

}  // namespace ada::backend::cpu
