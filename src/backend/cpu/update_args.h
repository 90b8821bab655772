// What the update kernel takes: a stretch of one parameter, or of a copy of it.
#pragma once
#include <cstdint>

#include "backend/update_rules.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {

// All arrays hold n fp32 values; `value` and the states are replaced. A state that the kind does
// not have is null, those that it has come first (optim/states.h). How a tensor is cut into
// stretches changes no value.
struct UpdateArgs {
  UpdateRule::Kind kind = UpdateRule::Kind::kSgd;  // one that looks at each value alone
  UpdateScalars scalars = {};
  // Each operation is rounded to this grid; null: fp32.
  const NumberGrid* arithmetic = nullptr;
  std::int64_t n = 0;
  float* value = nullptr;
  const float* gradient = nullptr;
  float* states[3] = {};
  // Where it is given, the new weight is not formed: `value` becomes the decayed weight, and `step`
  // what is to be added to it.
  float* step = nullptr;
};

}  // namespace ada::backend::cpu
