// The weight gradient straight from packed input: for each step (a tap and 16 input channels) and
// 16 or 32 output channels,
//
//   dw[in][out] += x[position, shifted by the tap][in] * dy[position][out]
//
// (for bf16 dot of two images) summed in registers over the positions of a strip of rows, whose sum
// is added to the partial gradient. A strip of x and dy stays in the first level of the cache while
// all steps pass. Positions whose tap lies outside the image are left out: they would add zeros.
#include <algorithm>

#include "backend/cpu/matmul/kernels/direct/sums.h"
#include "backend/cpu/matmul/kernels/weight_gradient_args.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kTileValues = 256, kPixelChannels = 16;
constexpr int kFewRows = 4;  // once, twice or three times: the last input channels of a step

// Strip by strip, and within a strip block by block of output channels: x and dy of a strip are
// read again and again from the nearest cache.
class Gradient {
 public:
  ADA_INLINE explicit Gradient(const DirectGradientArgs& a)
      : a_(a), plane_(a.dy_plane_bytes / 4), panel_(std::int64_t{a.step_count} * kTileValues) {}

  ADA_INLINE void Run() {
    for (int begin = 0; begin < a_.rows; begin += a_.strip_rows) {
      const int end = std::min(a_.rows, begin + a_.strip_rows);
      const bool first = a_.first && begin == 0;
      int n = 0;
      if constexpr (kRowsOfTwo > 0)
        for (; n + 2 <= a_.out_blocks; n += 2) Panel<kRowsOfTwo, 2>(n, begin, end, first);
      for (; n < a_.out_blocks; ++n) Panel<kRowsOfOne, 1>(n, begin, end, first);
      if (a_.bias != nullptr) Bias(begin, end, first);
    }
  }

 private:
  // Output channels 16 * n .. under all steps.
  // The last channels of a step are summed four, eight or twelve at a time where fewer are left
  // than the registers hold.
  template <int kRows, int kColumns>
  ADA_OUTLINE void Panel(int n, int begin, int end, bool first) {
    for (int s = 0; s < a_.step_count; ++s) {
      const int values = a_.step_values[s];
      for (int k = 0; k < values; k += kRows) {
        const int left = values - k;
        if (left <= kFewRows)
          Block<kFewRows, kColumns>(n, s, k, begin, end, first);
        else if (left <= 2 * kFewRows && 2 * kFewRows < kRows)
          Block<std::min(2 * kFewRows, kRows), kColumns>(n, s, k, begin, end, first);
        else if (left <= 3 * kFewRows && 3 * kFewRows < kRows)
          Block<std::min(3 * kFewRows, kRows), kColumns>(n, s, k, begin, end, first);
        else
          Block<kRows, kColumns>(n, s, k, begin, end, first);
      }
      for (int k = values; k < 16; ++k) Clear<kColumns>(n, s, k);
    }
  }

  template <int kRows, int kColumns>
  ADA_INLINE void Block(int n, int s, int k, int begin, int end, bool first) {
    float* partial = a_.partial + n * panel_ + std::int64_t{s} * kTileValues + k * kPixelChannels;
    Sums<kRows, kColumns> sums;
    sums.Zero();
    const ValidOutputs& valid = a_.valid[s];
    for (int row = begin; row < end; ++row) {
      const GradientRow& at = a_.rows_of_y[row];
      if (at.row < valid.top || at.row >= valid.bottom) continue;
      const std::byte* x = a_.x + at.x + a_.steps[s] + 4 * k;
      const float* dy = RowOfDy(row) + n * plane_;
      const int last = std::min(valid.right - at.position, a_.positions);
      for (int p = std::max(valid.left - at.position, 0); p < last; ++p)
        sums.Add(x + p * a_.x_bytes, 4, dy + p * kPixelChannels, plane_);
    }
    ForSums<kRows, kColumns>([&](int r, int c) {
      float* to = partial + c * panel_ + r * kPixelChannels;
      StoreF(to, first ? sums.Get(r, c) : LoadF(to) + sums.Get(r, c));
    });
  }
  // Whole tiles are summed and checked for values that are not finite; what is stored after a
  // step's values does not matter.
  template <int kColumns>
  ADA_INLINE void Clear(int n, int s, int k) {
    float* row = a_.partial + n * panel_ + std::int64_t{s} * kTileValues + k * kPixelChannels;
    for (int c = 0; c < kColumns; ++c) StoreF(row + c * panel_, F{});
  }
  template <int kRows, int kColumns, class Body>
  static ADA_INLINE void ForSums(Body&& body) {
#pragma GCC unroll 2
    for (int c = 0; c < kColumns; ++c)
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) body(r, c);
  }

  ADA_OUTLINE void Bias(int begin, int end, bool first) {
    float* bias = a_.bias;
    for (int n = 0; n < a_.out_blocks; ++n) {
      F sum = first ? F{} : LoadF(bias + n * kPixelChannels);
      const std::int64_t positions = std::int64_t{end - begin} * a_.positions;
      const float* dy = RowOfDy(begin) + n * plane_;
      for (std::int64_t p = 0; p < positions; ++p) {
        const F value = LoadF(dy + p * kPixelChannels);
        if constexpr (kPairs)
          sum += Float(Bits(value) << 16) + Float(Bits(value) & 0xffff0000u);
        else
          sum += value;
      }
      StoreF(bias + n * kPixelChannels, sum);
    }
  }
  ADA_INLINE const float* RowOfDy(int row) const {
    return reinterpret_cast<const float*>(a_.dy) +
           std::int64_t{row} * a_.positions * kPixelChannels;
  }

  const DirectGradientArgs& a_;
  const std::int64_t plane_, panel_;
};

}  // namespace

void DirectGradient(const DirectGradientArgs& a) { Gradient(a).Run(); }

void TilesToRows(const TilesToRowsArgs& a) {
  alignas(64) float tile[kPixelChannels][kPixelChannels];
  for (std::int64_t i = 0; i < a.values; i += kPixelChannels) {
    const float* from = a.tiles + i * kPixelChannels;
    const std::int64_t values = std::min<std::int64_t>(kPixelChannels, a.values - i);
    if (a.rows == kPixelChannels && values == kPixelChannels) {
      Transpose16(from, kPixelChannels, a.out + i, a.row_step);
    } else {
      Transpose16(from, kPixelChannels, tile[0], kPixelChannels);
      for (int row = 0; row < a.rows; ++row)
        std::copy_n(tile[row], values, a.out + row * a.row_step + i);
    }
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
