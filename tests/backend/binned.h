// Ops whose tensors take histograms: styles with bins, and the expected bins from tensors in fp32.
#pragma once
#include "backend/naive_bins.h"
#include "backend/styles.h"

namespace ada::backend::test {

inline Pass Binning(int rows) {
  Pass pass = Drawing(rows);
  pass.bins = true;
  return pass;
}
// A style whose bins are kept here, filled with what must not stay.
struct Binned : Style {
  explicit Binned(float scale = 0) : Style(false, 1, scale) {
    bins.zeros = bins[4] = 12345;
    style.bins = &bins;
  }
  ExponentBins bins;
};
inline ExponentBins ReferenceBins(const Tensor& before, int rows, double scale = 1) {
  return CountBins(First(Bench::Get(before), rows, before.shape), scale);
}
inline ExponentBins ReferenceBins(const Gradient& before, int rows) {
  return ReferenceBins(before.tensor, rows, static_cast<double>(*before.scale));
}

inline constexpr float kScales[] = {1, 1024, 3};

}  // namespace ada::backend::test
