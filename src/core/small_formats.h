// The formats of 6 and 4 bits that OCP Microscaling Formats 1.0 defines.
#pragma once
#include "core/number_format.h"

namespace ada {

inline constexpr NumberFormat kFp6E2M3{2, 3, 1, false, false};
inline constexpr NumberFormat kFp6E3M2{3, 2, 3, false, false};
inline constexpr NumberFormat kFp4E2M1{2, 1, 1, false, false};

}  // namespace ada
