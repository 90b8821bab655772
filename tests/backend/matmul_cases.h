// What the tests of products by kernels of our own ("tiles") share: awkward shapes, formats by
// role, and direct kernels in fp32 as well as those that a matrix unit or Winograd's algorithm
// makes.
#pragma once
#include <string>
#include <vector>

#include "backend/cpu/matmul/plan/winograd.h"
#include "backend/isa_setting.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {

// A bench whose products are sums in fp32 of one product after the other.
inline Bench FloatBench(int threads = 2) {
  const DirectMatmuls direct;
  if (!HasAmx()) return Bench(threads);
  const IsaSetting setting("avx512");
  return Bench(threads);
}

inline cpu::MatmulGeometry GeometryOf(const MatmulCase& c) {
  cpu::MatmulGeometry g;
  g.linear = c.linear, g.x = c.x, g.y = c.y();
  g.w = {c.out, c.kernel[0], c.kernel[1], c.x.c / c.groups};
  g.stride = c.stride, g.padding = c.padding, g.dilation = c.dilation, g.bias = c.bias;
  g.groups = c.groups;
  return g;
}
// Whether a backend made now may compute the layer by Winograd's algorithm.
inline bool MayUseWinograd(const MatmulCase& c) {
  const char* products = std::getenv("ADA_PRODUCTS");
  return (products == nullptr || *products == 0) && cpu::TakesWinograd(GeometryOf(c)) && !HasAmx();
}
// By Winograd's algorithm the nine weights of a kernel are made of the same sums: the error of each
// is bounded by the largest of their magnitudes. sums: dw, perhaps with db after it.
inline Sums ShareMagnitudes(const MatmulCase& c, Sums sums) {
  if (!MayUseWinograd(c) || !cpu::TakesWinogradGradient(GeometryOf(c))) return sums;
  const auto weights = static_cast<std::ptrdiff_t>(c.w().numel());
  for (auto kernel = sums.begin(); kernel != sums.begin() + weights; kernel += 9) {
    double largest = 0;
    for (auto sum = kernel; sum != kernel + 9; ++sum) largest = std::max(largest, sum->magnitude);
    for (auto sum = kernel; sum != kernel + 9; ++sum) sum->magnitude = largest;
  }
  return sums;
}

// A pass in which nothing is counted, as most of a run's are.
inline Pass QuietPass(int rows) {
  Pass pass = MakePass(rows);
  pass.count = false;
  return pass;
}

struct FormatSet {
  std::string name;
  MatmulFormats formats;
};
inline MatmulFormats AllOf(const NumberFormat& f) { return {f, f, f, f, f}; }
// Formats of one and of two bf16 parts, of none, and mixtures.
inline const std::vector<FormatSet>& KernelFormats() {
  NumberFormat saturating16 = kFp16, saturating8 = kFp8E4M3;
  saturating16.saturate = saturating8.saturate = true;
  const NumberFormat tf32{8, 10, 127}, small{5, 7, 15}, odd{6, 12, 31};
  static const std::vector<FormatSet> all = {
      {"fp16", AllOf(kFp16)},
      {"bf16", AllOf(kBf16)},
      {"fp8_e4m3", AllOf(kFp8E4M3)},
      {"fp8_e5m2", AllOf(kFp8E5M2)},
      {"cb16", AllOf(kCb16)},
      {"{8, 10}", AllOf(tf32)},
      {"{5, 7}", AllOf(small)},
      {"{6, 12}", AllOf(odd)},
      {"fp32", AllOf(kFp32)},
      {"fp16 saturating", AllOf(saturating16)},
      {"fp8 x, fp16 w, bf16 gradients", {kFp8E4M3, kFp16, kFp16, kBf16, kBf16}},
      {"fp16 x, fp8 w, fp8 gradients", {kFp16, saturating8, kFp16, kFp8E5M2, kFp8E5M2}},
      {"fp32 x, fp16 elsewhere", {kFp32, kFp16, kFp16, kFp16, kFp16}},
      {"fp32 w, bf16 elsewhere", {kBf16, kFp32, kBf16, kBf16, kBf16}},
      {"bf16 x, cb16 w, fp16 gradients", {kBf16, kCb16, kFp32, kFp16, kFp32}},
  };
  return all;
}

inline double Products(const MatmulCase& c, std::int64_t rows) {
  return static_cast<double>(rows * c.y().per_image()) * static_cast<double>(c.w().numel() / c.out);
}

// Tails in every dimension: channels around 16 and 32, widths around 16, odd kernels and strides.
inline std::vector<MatmulCase> KernelMatmuls() {
  const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, no = {0, 0};
  std::vector<MatmulCase> all = {
      {"3x3, 3 to 16", {5, 9, 11, 3}, 16, three, one, one, one, 1, false},
      {"3x3, 16", {4, 8, 16, 16}, 16, three, one, one, one, 1, false},
      {"3x3, 15 to 17, width 17", {3, 5, 17, 15}, 17, three, one, one, one, 1, true},
      {"3x3, 31 to 33, width 15", {3, 6, 15, 31}, 33, three, one, one, one, 1, false},
      {"3x3, 64 to 100", {2, 7, 4, 64}, 100, three, one, one, one, 1, false},
      {"3x3, 100 to 64, width 1", {3, 5, 1, 100}, 64, three, one, one, one, 1, true},
      {"3x3, 32, width 35", {2, 3, 35, 32}, 32, three, one, one, one, 1, false},
      {"3x3, stride 2, 16 to 32", {3, 10, 12, 16}, 32, three, two, one, one, 1, false},
      {"3x3, stride 2, odd", {3, 11, 13, 17}, 31, three, two, one, one, 1, true},
      {"3x3, stride 3", {3, 11, 16, 10}, 16, three, three, one, one, 1, false},
      {"3x3, stride 2x1", {3, 9, 18, 16}, 16, three, {2, 1}, one, one, 1, false},
      {"3x3, stride 1x3, padding 3x0", {2, 4, 19, 33}, 15, three, {1, 3}, {3, 0}, one, 1, false},
      {"3x3, not padded", {3, 7, 19, 16}, 16, three, one, no, one, 1, false},
      {"3x3, padding 0x2", {3, 7, 6, 16}, 10, three, one, {0, 2}, one, 1, false},
      {"3x3, dilation 2", {2, 9, 20, 32}, 16, three, one, two, two, 1, true},
      {"3x3, dilation 2, stride 2", {2, 11, 14, 16}, 16, three, two, one, two, 1, false},
      {"1x1, 16 to 32", {5, 5, 7, 16}, 32, one, one, no, one, 1, false},
      {"1x1, 64 to 1", {3, 3, 5, 64}, 1, one, one, no, one, 1, true},
      {"1x1, stride 2, 32 to 64", {3, 7, 9, 32}, 64, one, two, no, one, 1, false},
      {"1x1, padding 3", {2, 3, 4, 10}, 16, one, one, {3, 3}, one, 1, true},
      {"5x5, 1 to 6", {4, 12, 14, 1}, 6, {5, 5}, one, two, one, 1, true},
      {"5x5, 16, stride 3", {3, 13, 15, 16}, 16, {5, 5}, three, {3, 2}, one, 1, false},
      {"1x7", {3, 4, 21, 15}, 16, {1, 7}, one, {0, 3}, one, 1, false},
      {"7x1 over 33 to 3", {2, 9, 6, 33}, 3, {7, 1}, one, {3, 0}, one, 1, true},
      {"2x2, stride 2", {3, 8, 10, 17}, 32, two, two, no, one, 1, false},
      {"2x2, stride 2, a rest", {3, 9, 11, 32}, 17, two, two, no, one, 1, true},
      {"one pixel", {9, 1, 1, 16}, 16, three, one, one, one, 1, false},
      {"2 groups", {3, 6, 7, 32}, 32, three, one, one, one, 2, true},
      LinearCase("linear, 1 to 1", {9, 1, 1, 1}, 1, true),
      LinearCase("linear, 64 to 10", {9, 1, 1, 64}, 10, true),
      LinearCase("linear, 513 to 100", {7, 1, 1, 513}, 100, false),
      LinearCase("linear, 100 to 513", {33, 1, 1, 100}, 513, true),
      LinearCase("linear, 10 to 1", {17, 1, 1, 10}, 1, false),
      LinearCase("linear of images", {5, 4, 3, 16}, 10, true),
      LinearCase("linear of odd images", {6, 3, 5, 17}, 33, false),
      {"depthwise, 16", {4, 8, 16, 16}, 16, three, one, one, one, 16, false},
      {"depthwise, 20, width 1", {3, 5, 1, 20}, 20, three, one, one, one, 20, true},
      {"depthwise, stride 2, 33, odd", {3, 11, 13, 33}, 33, three, two, one, one, 33, true},
      {"depthwise, 5x5, dilation 2", {2, 12, 14, 32}, 32, {5, 5}, one, {4, 4}, two, 32, false},
      {"depthwise, 1x7, stride 1x3", {3, 4, 21, 17}, 17, {1, 7}, {1, 3}, {0, 3}, one, 17, false},
      {"depthwise, 3x3, stride 3, not padded",
       {2, 10, 11, 48},
       48,
       three,
       three,
       no,
       one,
       48,
       true},
      {"depthwise, 1x1, stride 2, padding 1", {2, 5, 6, 10}, 10, one, two, one, one, 10, false},
      {"groups of 4", {3, 7, 9, 32}, 32, three, one, one, one, 8, true},
      {"groups of 2, 36 channels, stride 2", {3, 9, 11, 36}, 36, three, two, one, one, 18, false},
      {"groups of 8, 40 channels, dilation 2", {2, 9, 10, 40}, 40, three, one, two, two, 5, true},
      {"groups of 4, 1x1, stride 2", {3, 6, 7, 12}, 12, one, two, no, one, 3, true},
      {"groups of 16, width 1", {3, 5, 1, 48}, 48, three, one, one, one, 3, true},
      {"groups of 32, stride 2", {2, 9, 12, 64}, 64, three, two, one, one, 2, false},
      {"groups of 33 to 17", {3, 5, 11, 99}, 51, three, one, one, one, 3, true},
      {"groups of 3 to 5", {4, 6, 21, 12}, 20, three, one, one, one, 4, true},
      {"groups of 1 to 2", {4, 6, 12, 10}, 20, three, two, one, one, 10, true},
      {"groups of 8 to 4, 1x1", {5, 5, 9, 32}, 16, one, one, no, one, 4, false},
      {"7x7, stride 2, 3 to 33", {3, 15, 37, 3}, 33, {7, 7}, two, three, one, 1, true},
      {"11x11, stride 4, 3 to 20", {2, 23, 59, 3}, 20, {11, 11}, {4, 4}, two, one, 1, false},
      {"3x3, 7 to 40, width 20", {3, 5, 20, 7}, 40, three, one, one, one, 1, false},
      {"3x3, dilation 2x1, 15 to 16", {3, 9, 19, 15}, 16, three, one, {2, 1}, {2, 1}, 1, true},
      {"1x1, stride 2, 5 to 16", {3, 7, 23, 5}, 16, one, two, no, one, 1, false},
      {"4x4, stride 2, not padded, 1 to 3", {3, 9, 31, 1}, 3, {4, 4}, two, no, one, 1, true},
      {"5x2, padding 0x1, 2 to 16", {3, 9, 17, 2}, 16, {5, 2}, one, {0, 1}, one, 1, false},
      LinearCase("linear of large images", {18, 9, 15, 16}, 20, true),
      LinearCase("linear of large images of one channel", {18, 40, 50, 1}, 17, false),
      LinearCase("linear of large odd images", {20, 13, 10, 11}, 37, true),
      // Tiles of images of several reduction blocks.
      {"1x3, 1024 to 16, one row", {9, 1, 9, 1024}, 16, {1, 3}, one, {0, 1}, one, 1, false},
      {"1x3, 16 to 1024, one row", {9, 1, 9, 16}, 1024, {1, 3}, one, {0, 1}, one, 1, true}};
  return all;
}

// Some of them, each of another kind.
inline std::vector<MatmulCase> SomeKernelMatmuls() {
  const std::vector<MatmulCase> all = KernelMatmuls();
  return {all[1], all[2], all[7], all[16], all[30], all[33], all[42], all[47], all[52], all[59]};
}

// `count` cases from a fixed seed, each of at most `most` products.
inline std::vector<MatmulCase> RandomMatmuls(int count, double most, std::uint64_t seed) {
  RandomStream random(seed, StreamId("products"));
  const auto below = [&](int n) {
    return static_cast<int>(random.Below(static_cast<unsigned>(n)));
  };
  const auto pick = [&](const auto& list) {
    return list[static_cast<std::size_t>(below(static_cast<int>(list.size())))];
  };
  const std::vector<std::array<int, 2>> kernels = {{1, 1}, {3, 3}, {3, 3}, {5, 5},
                                                   {1, 7}, {2, 2}, {3, 1}, {4, 3}},
                                        strides = {{1, 1}, {1, 1}, {2, 2}, {3, 3}, {2, 1}, {1, 2}};
  const std::vector<std::int64_t> channels = {1, 3, 10, 15, 16, 17, 31, 32, 33, 64, 100};
  std::vector<MatmulCase> all;
  while (static_cast<int>(all.size()) < count) {
    MatmulCase c;
    c.x = {1 + below(9), 1 + below(20), 1 + below(35), pick(channels)};
    c.out = pick(channels), c.bias = below(2) == 0;
    if (below(8) == 0) {
      c = LinearCase("linear", {c.x.n * 4, below(2) + 1, 1 + below(3), c.x.c * 5 - 2}, c.out,
                     c.bias);
    } else {
      c.kernel = pick(kernels), c.stride = pick(strides);
      c.padding = {below(4), below(4)};
      c.dilation = below(5) == 0 ? std::array<int, 2>{2, 2} : std::array<int, 2>{1, 1};
      if (below(5) == 0) {
        const std::vector<std::int64_t> in_group = {1, 2, 3, 4, 8, 8, 16, 17};
        c.groups = 2 + below(6);
        c.x.c = c.groups * pick(in_group);
        c.out = below(2) == 0 ? c.x.c : c.groups * pick(in_group);
      }
      if (c.x.c > 1 && below(6) == 0) c.out = c.x.c, c.groups = static_cast<int>(c.x.c);
    }
    c.name = "random " + std::to_string(all.size());
    const Shape y = c.y();
    const bool fits = c.x.h + 2 * c.padding[0] > c.dilation[0] * (c.kernel[0] - 1) &&
                      c.x.w + 2 * c.padding[1] > c.dilation[1] * (c.kernel[1] - 1);
    if (fits && y.h > 0 && y.w > 0 && Products(c, c.x.n) <= most) all.push_back(c);
  }
  return all;
}

inline std::string Text(const MatmulCase& c) {
  const auto pair = [](const std::array<int, 2>& p) {
    return std::to_string(p[0]) + "x" + std::to_string(p[1]);
  };
  return c.name + ": x " + std::to_string(c.x.n) + " of " + ToString(c.x) + ", out " +
         std::to_string(c.out) + (c.linear ? ", linear" : ", kernel " + pair(c.kernel)) +
         ", stride " + pair(c.stride) + ", padding " + pair(c.padding) + ", dilation " +
         pair(c.dilation) + ", groups " + std::to_string(c.groups) + (c.bias ? ", bias" : "");
}

}  // namespace ada::backend::test
