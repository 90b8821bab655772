// Counts of several parts of one tensor as one.
#pragma once
#include "core/stats.h"

namespace ada {

// The counts of both, as if one tensor had held all values.
TensorStats CombinedStats(const TensorStats& a, const TensorStats& b);

}  // namespace ada
