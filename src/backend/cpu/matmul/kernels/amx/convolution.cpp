// Convolutions on AMX tiles. Two row blocks of the output are summed at a time, for 16 output
// channels:
//
//                          weights of a step: one tile a part
//                            +----+
//                         32 |    |   tiles 6, 7
//                            +----+
//     records  16 +----+     +----+
//     of two      |    |     |    |   sums: tiles 0, 1 and tiles 2, 3 in turn
//     tiles       +----+     +----+
//                 tiles 4, 5
//
// A step is a tap and a block of input channels. Weights are taken in panels that stay in the first
// level of the cache while all row blocks pass; between panels sums wait in memory.
//
// The matrix unit takes 16 cycles a multiplication, in which the core has nothing else to do: so
// sums are stored while the next pair's multiplications run (a store that waits for its own makes
// the loads after it wait), and after each step a few rows of them are rounded.
#include "backend/cpu/matmul/kernels/amx/bf16_split.h"
#include "backend/cpu/matmul/kernels/packed_convolution_args.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr int kPair = 2, kTileValues = 256;

// Rows of finished row blocks on their way to the output: times factor, plus bias, rounded, and
// their largest magnitude.
template <class Mode>
class Rows {
 public:
  ADA_INLINE explicit Rows(const PackedConvolutionArgs& a)
      : out_(a.out),
        offsets_(a.row_offsets),
        all_bias_(a.bias),
        block_largest_(a.largest),
        factor_(a.factor),
        channels_(a.channels) {}

  // `sums` of two row blocks, for output channels 16 * n ..; those before them have been finished.
  ADA_INLINE void Begin(const RowBlock* tiles, int n, const float* sums) {
    tiles_ = tiles, sums_ = sums, next_ = 0, channel_ = 16 * n;
    lanes_ = Lanes(channels_ - channel_);
    if (all_bias_ != nullptr) bias_ = LoadF(all_bias_ + channel_);
  }
  // A few rows at a time, between two multiplications.
  ADA_INLINE void Some(int rows) {
    while (rows > 0 && next_ < kPair * 16) {
      const int left = 16 - next_ % 16, count = rows < left ? rows : left;
      Part(tiles_[next_ / 16], next_ % 16, count);
      next_ += count, rows -= count;
    }
  }
  ADA_INLINE void Rest() { Some(kPair * 16); }
  // The largest magnitude of the last block.
  ADA_INLINE void Finish() { Measure(); }

 private:
  // Rows first .. of one row block.
  ADA_INLINE void Part(const RowBlock& tile, int first, int count) {
    if (tile.block != block_) Measure(), block_ = tile.block;
    const float* sums = sums_ + next_ * 16;
    if (tile.valid == 0xffff && lanes_ == 0xffff) {
      all_bias_ != nullptr ? Whole<true>(tile.out + channel_, sums, first, count)
                           : Whole<false>(tile.out + channel_, sums, first, count);
      return;
    }
    for (int k = 0; k < count; ++k)
      if ((tile.valid >> (first + k) & 1u) != 0)
        Partial(tile.out + channel_ + offsets_[first + k], LoadF(sums + 16 * k));
  }
  template <bool kBias>
  ADA_INLINE void Whole(std::int64_t out, const float* sums, int first, int count) {
    const std::int64_t* offsets = offsets_ + first;
    const F factor = Fill(factor_), bias = bias_;
    void* const data = out_.data;
    U largest = largest_;
    for (int k = 0; k < count; ++k) {
      F x = LoadF(sums + 16 * k) * factor;
      if constexpr (kBias) x += bias;
      largest = MaxBits(largest, Magnitude(x));
      const std::int64_t i = out + offsets[k];
      if constexpr (Mode::kRounding == ModeRounding::kCodes)
        StoreH(static_cast<std::uint16_t*>(data) + i, Mode::Encode(x, Grid{}));
      else
        StoreF(static_cast<float*>(data) + i, x);
    }
    largest_ = largest;
  }
  // Fewer than 16 channels are left, or the row block has rows that stand for nothing.
  ADA_OUTLINE void Partial(std::int64_t i, F sum) {
    F x = sum * Fill(factor_);
    if (all_bias_ != nullptr) x += bias_;
    x = (F)_mm512_maskz_mov_ps(lanes_, (__m512)x);
    largest_ = MaxBits(largest_, Magnitude(x));
    if constexpr (Mode::kRounding == ModeRounding::kCodes)
      _mm256_mask_storeu_epi16(static_cast<std::uint16_t*>(out_.data) + i, lanes_,
                               (__m256i)Mode::Encode(x, Grid{}));
    else
      _mm512_mask_storeu_ps(static_cast<float*>(out_.data) + i, lanes_, (__m512)x);
  }
  ADA_INLINE void Measure() {
    if (block_ >= 0) {
      const std::uint32_t largest = _mm512_reduce_max_epu32((__m512i)largest_);
      if (largest > block_largest_[block_]) block_largest_[block_] = largest;
    }
    largest_ = U{};
  }

  const TensorSpan out_;
  const std::int64_t* const offsets_;
  const float* const all_bias_;
  std::uint32_t* const block_largest_;
  const float factor_;
  const int channels_;
  const RowBlock* tiles_ = nullptr;
  const float* sums_ = nullptr;
  int next_ = kPair * 16, channel_ = 0, block_ = -1;
  __mmask16 lanes_ = 0xffff;
  F bias_{};
  U largest_{};
};

// --- products ------------------------------------------------------------------------------------

// Adds packed pixels (tile 4 or 5) times weights (6, and 7 where there are two parts) to sums kSum.
template <int kSum, int kWeightParts>
ADA_INLINE void Multiply(const std::byte* packed, std::int64_t row_bytes) {
  constexpr int kPixels = 4 + kSum % 2;
  LoadRows<kPixels>(packed, row_bytes);
  MultiplyTiles<kSum, kPixels, 6>();
  if constexpr (kWeightParts == 2) MultiplyTiles<kSum, kPixels, 7>();
}

// kRows: rows of a tile that a packed pixel takes: one a part, or one for both. kSums: the first of
// two.
template <int kSums, int kRows, int kWeightParts>
ADA_INLINE void Step(const std::byte* const* packed, std::int64_t offset, std::int64_t row_bytes,
                     const std::byte* weights) {
  LoadRows<6>(weights, 64);
  if constexpr (kWeightParts == 2) LoadRows<7>(weights + 1024, 64);
  for (int row = 0; row < kRows; ++row) {
    Multiply<kSums, kWeightParts>(packed[0] + offset + 64 * row, row_bytes);
    Multiply<kSums + 1, kWeightParts>(packed[1] + offset + 64 * row, row_bytes);
  }
}

// One call of the kernel.
template <int kRows, int kWeightParts, class Mode>
class Convolution {
 public:
  ADA_INLINE explicit Convolution(const PackedConvolutionArgs& a) : a_(a), rows_(a) {}

  ADA_INLINE void Run() {
    const int most = 32 / kWeightParts;  // steps: 32 KB of weights
    const int panels = a_.step_count > most ? (a_.step_count + most - 1) / most : 1;
    const int panel = (a_.step_count + panels - 1) / panels;
    for (int n = 0; n < (a_.channels + 15) / 16; ++n) {
      for (int k = 0; k < panels; ++k) {
        const int begin = k * panel, end = k + 1 < panels ? begin + panel : a_.step_count;
        for (int first = 0; first < a_.tile_count; first += 2 * kPair) {
          Pair<0>(n, first, begin, end);
          Pair<2>(n, first + kPair, begin, end);
        }
      }
      weights_ += static_cast<std::int64_t>(a_.step_count) * kWeightParts * 1024;
    }
    Settle<2>();
    rows_.Rest();
    rows_.Finish();
  }

 private:
  // Sums that are still in their tiles: where they go; and, once they are whole, whose they are.
  struct Waiting {
    float* to = nullptr;
    const RowBlock* tiles = nullptr;
    int n = 0;
  };

  // Steps begin .. end of tiles first, first + 1, in sums kSums and kSums + 1.
  template <int kSums>
  ADA_INLINE void Pair(int n, int first, int begin, int end) {
    const RowBlock* tiles = a_.tiles + first;
    const std::byte* const packed[kPair] = {a_.packed + tiles[0].packed_pixel,
                                            a_.packed + tiles[1].packed_pixel};
    float* sums = a_.sums + static_cast<std::int64_t>(first) * kTileValues;
    if (begin == 0) {
      ZeroTile<kSums>();
      ZeroTile<kSums + 1>();
    } else {
      LoadTile<kSums>(sums);
      LoadTile<kSums + 1>(sums + kTileValues);
    }
    // Rows of the finished pair are spread evenly over the steps of this one.
    const int quota = end - begin > 1 ? (kPair * 16 + end - begin - 2) / (end - begin - 1) : 0;
    for (int s = begin; s < end; ++s) {
      Step<kSums, kRows, kWeightParts>(
          packed, a_.steps[s], a_.row_bytes,
          weights_ + static_cast<std::int64_t>(s) * kWeightParts * 1024);
      if (s == begin)
        Settle<2 - kSums>();
      else
        rows_.Some(quota);
    }
    if (begin == end) Settle<2 - kSums>();
    const bool whole = end == a_.step_count;
    waiting_ = {whole ? finished_[kSums / 2] : sums, whole ? tiles : nullptr, n};
  }

  // Stores the other pair's sums.
  template <int kSums>
  ADA_INLINE void Settle() {
    if (waiting_.to == nullptr) return;
    if (waiting_.tiles != nullptr) rows_.Rest();
    StoreTile<kSums>(waiting_.to);
    StoreTile<kSums + 1>(waiting_.to + kTileValues);
    if (waiting_.tiles != nullptr) rows_.Begin(waiting_.tiles, waiting_.n, waiting_.to);
  }

  const PackedConvolutionArgs& a_;
  const AmxSession session_;
  const std::byte* weights_ = a_.weights;
  Rows<Mode> rows_;
  Waiting waiting_;
  alignas(64) float finished_[2][kPair * kTileValues];
};

template <int kRows, int kWeightParts, class Mode>
void Run(const PackedConvolutionArgs& a) {
  Convolution<kRows, kWeightParts, Mode>(a).Run();
}

template <class Mode>
void RunMode(const PackedConvolutionArgs& a) {
  if (a.x_parts == 2 && !a.both_parts_in_row)
    return a.w_parts == 2 ? Run<2, 2, Mode>(a) : Run<2, 1, Mode>(a);
  a.w_parts == 2 ? Run<1, 2, Mode>(a) : Run<1, 1, Mode>(a);
}

}  // namespace

void Convolve(const PackedConvolutionArgs& a) {
  ForStorage(a.out.storage, [&](auto mode) { RunMode<decltype(mode)>(a); });
}

extern const MatmulKernels kAmxTable;
const MatmulKernels kAmxTable = {.multiplies = MatmulKernels::Multiplies::kBf16Split,
                                 .packed_bytes = 5 << 18,
                                 .pack_input = PackInput,
                                 .pack_weights = PackWeights,
                                 .convolve = Convolve,
                                 .weight_gradient = WeightGradient};

}  // namespace ada::backend::cpu::ADA_ISA
