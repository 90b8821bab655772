// Extremes of the products of the data gradient, from all pairs that meet.
#pragma once
#include <algorithm>

#include "backend/values.h"

namespace ada::backend::test {

inline double Abs(float x) { return std::fabs(static_cast<double>(x)); }

// Over non-zero products; 0: there is none.
struct MatmulRange {
  double min = 0, max = 0;
};
// dy: channels are innermost; w: [channels, ...].
inline MatmulRange RangeOf(const Values& dy, const Values& w, std::int64_t channels) {
  MatmulRange r;
  const std::size_t c = static_cast<std::size_t>(channels), row = w.size() / c;
  for (std::size_t i = 0; i < dy.size(); ++i)
    for (std::size_t j = 0; j < row; ++j) {
      const double product = Abs(dy[i]) * Abs(w[i % c * row + j]);
      if (product == 0) continue;
      r.min = r.max == 0 ? product : std::min(r.min, product);
      r.max = std::max(r.max, product);
    }
  return r;
}

}  // namespace ada::backend::test
