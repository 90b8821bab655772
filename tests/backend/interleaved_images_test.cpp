// How many images lie side by side in the records of direct products: a choice that no other beats,
// by a count of what blocks of 8 or 16 rows compute.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "backend/matmul_cases.h"
#include "backend/reductions.h"

namespace ada::backend::test {
namespace {

using cpu::MatmulGeometry;

cpu::MatmulKernels KernelsOf(int rows, std::int64_t packed_bytes) {
  cpu::MatmulKernels kernels{};
  kernels.multiplies = cpu::MatmulKernels::Multiplies::kBf16Dot;
  kernels.rows = rows, kernels.packed_bytes = packed_bytes;
  return kernels;
}

// Columns of dy (or x) that column `out` of dx (or y) meets, one for each tap; outside ones too.
std::vector<int> MetBy(const MatmulGeometry& g, bool data_gradient, int out) {
  std::vector<int> met;
  for (int k = 0; k < g.w.w; ++k) {
    const int at = k * g.dilation[1] - g.padding[1];
    if (!data_gradient)
      met.push_back(out * g.stride[1] + at);
    else if ((out - at) % g.stride[1] == 0)
      met.push_back((out - at) / g.stride[1]);
  }
  return met;
}

// Rows times taps of one row of the output, where `together` images lie side by side: a block of
// rows computes a tap if any of its columns meets the input with it.
std::int64_t Computed(const MatmulGeometry& g, bool data_gradient, int images, int together,
                      int rows) {
  const auto width = static_cast<int>(data_gradient ? g.x.w : g.y.w);
  const auto in_width = static_cast<int>(data_gradient ? g.y.w : g.x.w);
  const int step =
      data_gradient ? g.stride[1] : 1;  // columns of one remainder are computed together
  const int wide = std::max(1, rows / together);
  std::int64_t of_group = 0;
  for (int remainder = 0; remainder < step; ++remainder) {
    std::vector<int> columns;
    for (int x = remainder; x < width; x += step) columns.push_back(x);
    for (std::size_t x = 0; x < columns.size(); x += static_cast<std::size_t>(wide)) {
      const std::size_t end = std::min(columns.size(), x + static_cast<std::size_t>(wide));
      std::vector<bool> any;
      for (std::size_t i = x; i < end; ++i) {
        const std::vector<int> met = MetBy(g, data_gradient, columns[i]);
        any.resize(met.size());
        for (std::size_t tap = 0; tap < met.size(); ++tap)
          if (met[tap] >= 0 && met[tap] < in_width) any[tap] = true;
      }
      of_group += std::count(any.begin(), any.end(), true) * std::max(rows, together);
    }
  }
  return (images + together - 1) / together * of_group;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("side by side: no other number of images takes fewer products") {
    int other_than_one = 0;
    const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3};
    std::vector<MatmulCase> cases = {
        {"stride 2, 28", {1, 28, 28, 64}, 64, three, two, one, one, 1, false},
        {"5x5, 7", {1, 7, 7, 64}, 64, {5, 5}, one, two, one, 1, false},
        {"dilation 2, 9", {1, 9, 9, 64}, 64, three, one, two, two, 1, false},
        {"1x1, 14", {1, 14, 14, 64}, 64, one, one, {0, 0}, one, 1, false}};
    for (int size = 1; size <= 40; ++size)
      cases.push_back({"3x3", {1, size, size, 64}, 64, three, one, one, one, 1, false});
    for (const MatmulCase& c : cases) {
      const MatmulGeometry g = GeometryOf(c);
      CAPTURE(c.name);
      CAPTURE(c.x.w);
      for (const int images : {1, 3, 8, 100, 128})
        for (const int rows : {8, 16})
          for (const bool data_gradient : {false, true}) {
            const cpu::MatmulKernels kernels = KernelsOf(rows, 1 << 30);
            const int chosen = data_gradient ? cpu::ImagesForDataGradient(kernels, g, images)
                                             : cpu::ImagesForOutputs(kernels, g, images);
            CAPTURE(images);
            CAPTURE(chosen);
            if (chosen > 1) ++other_than_one;
            const std::int64_t width =
                data_gradient ? (c.x.w + c.stride[1] - 1) / c.stride[1] : c.y().w;
            CHECK(chosen <= std::max(images, InterleavedImages(width)));
            const std::int64_t best = Computed(g, data_gradient, images, chosen, rows);
            for (int together = 1; together <= std::min(16, images); together *= 2)
              CHECK(best <= Computed(g, data_gradient, images, together, rows));
          }
    }
    CHECK(other_than_one > 100);
  }

  TEST_CASE("side by side: records stay in a core's own cache") {
    const MatmulGeometry g =
        GeometryOf({"3x3", {1, 8, 8, 256}, 256, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false});
    CHECK(cpu::ImagesForOutputs(KernelsOf(8, 1 << 20), g, 128) == 8);
    // 8 blocks of 32 channels of a frame of at most 11 x 11 records of 64 bytes.
    constexpr int kImageBytes = 8 * 11 * 11 * 64;
    CHECK(cpu::ImagesForOutputs(KernelsOf(8, 8 * kImageBytes), g, 128) == 8);
    CHECK(cpu::ImagesForOutputs(KernelsOf(8, 8 * kImageBytes - 1), g, 128) < 8);
  }

  TEST_CASE("side by side: rows of a weight gradient are long where there are images for it") {
    const auto chosen = [](int width, int images) {
      return cpu::ImagesForLongRows(
          GeometryOf({"3x3", {1, 4, width, 64}, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false}),
          images);
    };
    CHECK(chosen(32, 128) == 2);
    CHECK(chosen(33, 128) == 1);
    CHECK(chosen(4, 128) == 16);
    CHECK(chosen(1, 128) == 16);  // no more than a tile has rows
    CHECK(chosen(8, 7) == 4);
    CHECK(chosen(8, 1) == 1);  // no more than there are
  }

  TEST_CASE("side by side: of few channels images lie as runs and windows want them") {
    for (const int width : {1, 2, 5, 8, 30}) {
      const MatmulGeometry g =
          GeometryOf({"3x3", {1, 9, width, 3}, 64, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false});
      for (const int images : {1, 128})
        CHECK(cpu::ImagesForOutputs(KernelsOf(8, 1 << 30), g, images) == InterleavedImages(width));
    }
  }
}

}  // namespace ada::backend::test
