// Moments of values in double, as a producer of gradients leaves them after.
#pragma once
#include <algorithm>
#include <cmath>

#include "backend/values.h"
#include "number/stats.h"

namespace ada::backend::test {

inline TensorMoments MomentsOf(const Values& values) {
  TensorMoments m;
  m.min = m.max = values[0];
  for (const float v : values) {
    const auto x = static_cast<double>(v), n = static_cast<double>(values.size());
    m.mean += x / n, m.mean_square += x * x / n;
    m.min = std::min(m.min, v), m.max = std::max(m.max, v);
    if (v != 0 && (m.min_abs == 0 || std::fabs(v) < m.min_abs)) m.min_abs = std::fabs(v);
  }
  return m;
}

}  // namespace ada::backend::test
