// Float tensors of a safetensors file as fp32 values, whatever type they are stored in.
#pragma once
#include <vector>

#include "core/safetensors.h"

namespace ada::train {

bool IsFloat(DType dtype);  // F64 F32 F16 BF16 F8_E4M3 F8_E5M2

// All values of a tensor of `file`: exact, but F64 rounded to nearest. DataError naming file and
// tensor where it holds integers.
std::vector<float> ReadFloats(const SafetensorsFile& file, const TensorEntry& entry);

}  // namespace ada::train
