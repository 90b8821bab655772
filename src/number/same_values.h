// Formats that differ only in what they make of values beyond their largest one.
#pragma once
#include "number/number_format.h"

namespace ada {

// Whether values of `format` are those of `of`, whatever becomes of what is beyond them.
inline bool HasValuesOf(const NumberFormat& of, NumberFormat format) {
  format.saturate = of.saturate;
  return format == of;
}

}  // namespace ada
