// What src/scaling/README.md says of the methods, in double, from all values of dy and w.
#pragma once
#include <doctest/doctest.h>

#include <bit>

#include "backend/moments.h"
#include "backend/product_range.h"
#include "scaling/rules/rules.h"

namespace ada::backend::test {

// The unbound scale of a layer with a weight.
inline double ExpectedUnbound(const scaling::LayerRule& r, const Values& dy, const Values& w,
                              std::int64_t channels) {
  using scaling::LayerMethod;
  const TensorMoments d = MomentsOf(dy), v = MomentsOf(w);
  const double d_max = std::max(Abs(d.min), Abs(d.max)), w_max = std::max(Abs(v.min), Abs(v.max));
  double want = 0, cap = (r.u_max / r.fan) / (d_max * w_max);
  if (r.method == LayerMethod::kApproxRange || r.method == LayerMethod::kLognormal) {
    want = r.u_min / (r.t * std::sqrt(d.mean_square * v.mean_square * 0.5 * r.fan));
  } else if (r.method == LayerMethod::kAbsRange) {
    want = (r.u_min / r.fan) / std::max(Abs(d.min_abs) * Abs(v.min_abs), 1e-15);
  } else {
    const MatmulRange range = RangeOf(dy, w, channels);
    want = r.u_min / range.min, cap = r.u_max / range.max / r.fan;
  }
  return std::min(std::max(want, 1.0), cap);
}

// Bins as ExponentTail describes them.
inline scaling::ExponentTail TailOf(const Values& values) {
  scaling::ExponentTail tail;
  for (const float v : values) {
    const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(v) >> 23 & 0xff);
    tail.nonzero += v != 0;
    if (v != 0) ++tail.bins[exponent];
    tail.largest = std::max(tail.largest, Abs(v));
  }
  return tail;
}
inline void CheckTail(const scaling::ExponentTail& got, const scaling::ExponentTail& want) {
  for (int bin = 0; bin < scaling::ExponentTail::kBins; ++bin) {
    CAPTURE(bin);
    CHECK(got.bins[bin] == want.bins[bin]);
  }
  CHECK(got.nonzero == want.nonzero);
  CHECK(got.largest == want.largest);
}

}  // namespace ada::backend::test
