// Formats that differ only in what they make of values beyond their largest one.
#pragma once
#include "number/number_format.h"
#include "number/tensor.h"

namespace ada {

// Whether values of `format` are those of `of`, whatever becomes of what is beyond them.
inline bool HasValuesOf(const NumberFormat& of, NumberFormat format) {
  format.saturate = of.saturate;
  return format == of;
}
// Whether values are kept as bf16 numbers; those of a tensor with a per-tensor scale are not.
inline bool IsKeptInBf16(const NumberFormat& format, Storage storage) {
  return storage == Storage::kBF16 && HasValuesOf(kBf16, format);
}

}  // namespace ada
