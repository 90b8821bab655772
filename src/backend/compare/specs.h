// Specs of the first backend as the second needs them: the same, at its own addresses.
#pragma once
#include "backend/compare/mirror.h"

namespace ada::backend::compare {

InputSpec ForSecond(const Mirror& mirror, InputSpec spec);
Conv2dSpec ForSecond(const Mirror& mirror, Conv2dSpec spec);
LinearSpec ForSecond(const Mirror& mirror, LinearSpec spec);
BatchNormSpec ForSecond(const Mirror& mirror, BatchNormSpec spec);
ReluSpec ForSecond(const Mirror& mirror, ReluSpec spec);
MaxPoolSpec ForSecond(const Mirror& mirror, MaxPoolSpec spec);
AvgPoolSpec ForSecond(const Mirror& mirror, AvgPoolSpec spec);
AddSpec ForSecond(const Mirror& mirror, AddSpec spec);
ScaleSpec ForSecond(const Mirror& mirror, ScaleSpec spec);
ShortcutSpec ForSecond(const Mirror& mirror, ShortcutSpec spec);
FlattenSpec ForSecond(const Mirror& mirror, FlattenSpec spec);
DropoutSpec ForSecond(const Mirror& mirror, DropoutSpec spec);
BranchSumSpec ForSecond(const Mirror& mirror, BranchSumSpec spec);
LossSpec ForSecond(const Mirror& mirror, LossSpec spec);
UpdateSlot ForSecond(const Mirror& mirror, UpdateSlot slot);

}  // namespace ada::backend::compare
