// Specs of the first backend as the second needs them: the same, at its own addresses.
#pragma once
#include "backend/compare/address_map.h"

namespace ada::backend::compare {

InputSpec ForSecond(const AddressMap& mirror, InputSpec spec);
Conv2dSpec ForSecond(const AddressMap& mirror, Conv2dSpec spec);
LinearSpec ForSecond(const AddressMap& mirror, LinearSpec spec);
BatchNormSpec ForSecond(const AddressMap& mirror, BatchNormSpec spec);
ReluSpec ForSecond(const AddressMap& mirror, ReluSpec spec);
MaxPoolSpec ForSecond(const AddressMap& mirror, MaxPoolSpec spec);
AvgPoolSpec ForSecond(const AddressMap& mirror, AvgPoolSpec spec);
AddSpec ForSecond(const AddressMap& mirror, AddSpec spec);
ScaleSpec ForSecond(const AddressMap& mirror, ScaleSpec spec);
ShortcutSpec ForSecond(const AddressMap& mirror, ShortcutSpec spec);
FlattenSpec ForSecond(const AddressMap& mirror, FlattenSpec spec);
DropoutSpec ForSecond(const AddressMap& mirror, DropoutSpec spec);
BranchSumSpec ForSecond(const AddressMap& mirror, BranchSumSpec spec);
LossSpec ForSecond(const AddressMap& mirror, LossSpec spec);
UpdateSlot ForSecond(const AddressMap& mirror, UpdateSlot slot);

}  // namespace ada::backend::compare
