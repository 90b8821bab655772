// `ada-train convert`: a safetensors file as a number format keeps it.
#pragma once
#include <string>

#include "core/number_format.h"

namespace ada::study {

// Writes `input`'s tensors to `output`: floats as RoundTo(format, x * scale) in F32 (F64 to fp32
// first, both to nearest; the product is fp32's, as in a run), integers and booleans as they are;
// names, shapes and metadata are kept, tensors are ordered by their element's size. The output
// appears whole or not at all and may be the input itself. DataError, ConfigError (a scale that
// fp32 cannot hold), OutputError.
void Convert(const std::string& input, const std::string& output, const NumberFormat& format,
             double scale);

}  // namespace ada::study
