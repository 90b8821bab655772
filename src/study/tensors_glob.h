// The option --tensors of commands that read a safetensors file.
#pragma once
#include <string>

#include "core/tensor_files/safetensors.h"

namespace ada::study {

// Throws ConfigError where `glob` matches no tensor of a file that has some: that is a slip.
// Called by inspect and convert before they read any values.
void CheckTensorsGlob(const SafetensorsFile& file, const std::string& glob);

}  // namespace ada::study
