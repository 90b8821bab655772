// Convolutions straight from packed input: the sums of a row block of the output, for 16 or 32
// output channels, stay in registers while all taps and input channels pass; then they are
// multiplied, rounded and stored.
//
//                          weights of a step: a row for each of 16 input channels
//                            +----+
//                         16 |    |     loaded once for all rows
//                            +----+
//     records  8  +----+     +----+
//     (rows)      |    |     |    |     sums: registers
//                 +----+     +----+
//                 one value (or pair) at a time, as a factor of 16 lanes
//
// Steps that find nothing but the zeros around the image, for all rows of a block, are left out.
// The sum of all others stays what it was to the last bit: panels of steps begin where they would.
#include <algorithm>

#include "backend/cpu/matmul/kernels/direct/sums.h"
#include "backend/cpu/matmul/kernels/packed_convolution_args.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kTileValues = 256, kPixelBytes = 64, kHalf = 8;
// Sums of this many steps (16 channels of a 3x3 kernel each) are added to the total: in fp32 sums
// of partial sums are more accurate than one long sum. Outputs are then as accurate as PyTorch's.
constexpr int kPanelSteps = 9;

// One call of the kernel.
template <class Mode>
class Convolution {
 public:
  ADA_INLINE explicit Convolution(const PackedConvolutionArgs& a)
      : a_(a), out_(a.out, a.factor, a.bias), panel_(std::int64_t{a.step_count} * kTileValues) {}

  ADA_INLINE void Run() {
    if (a_.row_bytes == kPixelBytes)
      Panels<false>();
    else
      Panels<true>();
  }

 private:
  // kDenseRows: the rows of a row block overlap.
  template <bool kDenseRows>
  ADA_INLINE void Panels() {
    const int blocks = (a_.channels + 15) / 16;
    int n = 0;
    if constexpr (kRowsOfTwo > 0)
      for (; n + 2 <= blocks; n += 2) Panel<kRowsOfTwo, 2, kDenseRows>(n);
    for (; n < blocks; ++n) Panel<kRowsOfOne, 1, kDenseRows>(n);
  }

  // All row blocks, for output channels 16 * n ..
  template <int kRows, int kColumns, bool kDenseRows>
  ADA_OUTLINE void Panel(int n) {
    const float* weights = reinterpret_cast<const float*>(a_.weights) + n * panel_;
    for (int i = 0; i < a_.tile_count; ++i) {
      const RowBlock& tile = a_.tiles[i];
      if (tile.valid == 0) continue;
      if (tile.block != block_) Measure(), block_ = tile.block;
      for (int row = 0; row < 16; row += kRows) {
        const int rows = kRows < 16 - row ? kRows : 16 - row;
        if ((tile.valid >> row & ((1u << rows) - 1)) == 0) continue;
        if constexpr (16 % kRows != 0)
          if (rows < kRows) {
            Block<16 % kRows, kColumns, kDenseRows>(tile, row, n, weights);
            continue;
          }
        Block<kRows, kColumns, kDenseRows>(tile, row, n, weights);
      }
    }
    Measure();
  }

  // waiting_ holds the sums of the panels of steps before; the first panel's need no addition.
  template <int kRows, int kColumns, bool kDenseRows>
  ADA_INLINE void Block(const RowBlock& tile, int row, int n, const float* weights) {
    Sums<kRows, kColumns> sums;
    const std::int64_t row_bytes = kDenseRows ? a_.row_bytes : kPixelBytes;
    const std::byte* packed = a_.packed + tile.packed_pixel + row * row_bytes;
    const int list = kRows == kHalf ? tile.steps.of_half[row / kHalf] : tile.steps.of_all;
    const std::int32_t* step = a_.lists + a_.list_begins[list];
    const std::int32_t* const end = a_.lists + a_.list_begins[list + 1];
    sums.Zero();
    for (bool first = true; step != end; first = false) {
      const int panel_end = (*step / kPanelSteps + 1) * kPanelSteps;
      for (; step != end && *step < panel_end; ++step) {
        const int s = *step;
        const std::byte* x = packed + a_.steps[s];
        const float* w = weights + std::int64_t{s} * kTileValues;
        const int values = kPairs ? (a_.step_values[s] + 1) / 2 : a_.step_values[s];
        // Most steps are full: a loop whose end is known costs no wrong guess.
        if (values == 16) {
#pragma GCC unroll 4
          for (int k = 0; k < 16; ++k) sums.Add(x + 4 * k, row_bytes, w + 16 * k, panel_);
        } else {
          for (int k = 0; k < values; ++k) sums.Add(x + 4 * k, row_bytes, w + 16 * k, panel_);
        }
      }
      if (!first) sums.AddTo(waiting_);
      if (step != end) sums.Keep(waiting_), sums.Zero();
    }
    const std::int64_t* const offsets = a_.row_offsets + row;
    const std::uint32_t valid = tile.valid >> row;
    const int channels = a_.channels;
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      if ((valid >> r & 1u) == 0) continue;
      U largest = largest_[row + r];
#pragma GCC unroll 2
      for (int c = 0; c < kColumns; ++c) {
        const int channel = 16 * (n + c);
        largest = out_.Store(tile.out + offsets[r] + channel, channel, channels - channel,
                             sums.Get(r, c), largest);
      }
      largest_[row + r] = largest;
    }
  }

  // The largest magnitudes of the row blocks since the last call, by reduction block.
  // Rows of one row block may belong to several reduction blocks, where images are interleaved.
  ADA_INLINE void Measure() {
    if (block_ >= 0 && a_.largest != nullptr)
      for (int apart = 0; apart <= a_.row_blocks[15]; ++apart) {
        U largest{};
        for (int row = 0; row < 16; ++row)
          if (a_.row_blocks[row] == apart) largest = MaxBits(largest, largest_[row]);
        MergeLargest(largest, a_.largest + block_ + apart);
      }
    std::fill_n(largest_, 16, U{});
  }

  const PackedConvolutionArgs& a_;
  const SumsOut<Mode> out_;
  const std::int64_t panel_;
  int block_ = -1;
  U largest_[16] = {};  // by row of the row blocks of block_
  alignas(64) float waiting_[kTileValues];
};

}  // namespace

void ConvolveBySums(const PackedConvolutionArgs& a) {
  ForStorage(a.out.storage, [&](auto mode) { Convolution<decltype(mode)>(a).Run(); });
}

extern const MatmulKernels kDirectTable;
const MatmulKernels kDirectTable = {
    .multiplies = kPairs ? MatmulKernels::Multiplies::kBf16Dot : MatmulKernels::Multiplies::kFp32,
    .packed_bytes = 1 << 19,
    .rows = kRowsOfTwo > 0 ? kRowsOfTwo : 16,
    .pack_input = PackInputForSums,
    .pack_weights = PackWeightsForSums,
    .convolve = ConvolveBySums,
    .direct_gradient = DirectGradient,
    .tiles_to_rows = TilesToRows,
    .depthwise_row = DepthwiseRow,
    .depthwise_gradient = DepthwiseGradient,
    .widen_pixels = WidenPixels};

}  // namespace ada::backend::cpu::ADA_ISA
