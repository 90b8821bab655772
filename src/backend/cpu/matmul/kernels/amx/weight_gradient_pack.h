// Packs for the weight gradient, in small steps that hide behind the matrix unit's work. Layout:
// partial_gradients.h.
//
// Makes pairs of bf16 values of pairs of values, for the weight gradient. Values `a` of the pairs'
// first images and `b` of their second ones are in two vectors; their upper halves make the pairs:
//
//   high   a's upper 16 bits | b's upper 16 bits << 16     low   the same of what is left of a, b
#pragma once
#include "backend/cpu/matmul/kernels/amx/bf16_split.h"
#include "backend/cpu/matmul/kernels/weight_gradient_args.h"

namespace ada::backend::cpu::ADA_ISA {

// Pairs of x to be packed: those of a row of a plane, from `packed_pixel` on.
struct PairRun {
  const std::byte* const* first = nullptr;   // of each pair: where its first image's row begins,
  const std::byte* const* second = nullptr;  // and its second's
  std::ptrdiff_t source = 0, step = 0;       // bytes to the first pixel, and from pixel to pixel
  int shift = 0;                             // there are 2^shift pairs a pixel
  int packed_pixel = 0, count = 0;
  __mmask16 lanes = 0;
  std::byte* out = nullptr;  // of the first packed pixel
  std::size_t low = 0;       // bytes from high parts to low ones
};
// 16 channels of 16 pairs of dy, and the state between two steps.
struct PairBlock {
  const std::byte* row = nullptr;  // of dy, at the first of the channels
  const GradientOffsets* offsets = nullptr;
  __mmask16 lanes = 0;
  std::byte* out = nullptr;  // the tile of high parts, then that of low ones
  __m512i first[8], second[8];
};

struct Pairs {
  __m512i high, low;
};
ADA_INLINE __m512i Upper(__m512i x) {
  return _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u)));
}
ADA_INLINE __m512i PairUp(__m512i a, __m512i upper_b) {
  return _mm512_or_si512(_mm512_srli_epi32(a, 16), upper_b);
}
template <bool kTwoParts>
ADA_INLINE Pairs PairsOf(F a, F b) {
  const __m512i upper_b = Upper((__m512i)b);
  Pairs pairs;
  pairs.high = PairUp((__m512i)a, upper_b);
  if constexpr (kTwoParts) {
    const F rest_a = a - (F)Upper((__m512i)a), rest_b = b - (F)upper_b;
    pairs.low = PairUp((__m512i)rest_a, Upper((__m512i)rest_b));
  }
  return pairs;
}

// --- x: channels side by side --------------------------------------------------------------------

template <Storage kStorage, bool kTwoParts, bool kWhole, bool kOnePair>
void PackRun(const PairRun& run) {
  std::byte* out = run.out;
  for (int k = 0; k < run.count; ++k, out += 64) {
    const int packed_pixel = run.packed_pixel + k,
              pair = kOnePair ? 0 : packed_pixel & ((1 << run.shift) - 1);
    const std::ptrdiff_t at =
        run.source + (kOnePair ? packed_pixel : packed_pixel >> run.shift) * run.step;
    const std::byte *first = run.first[pair] + at, *second = run.second[pair] + at;
    F a, b;
    if constexpr (kWhole)
      a = LoadWhole<kStorage>(first, 0), b = LoadWhole<kStorage>(second, 0);
    else
      a = LoadLanes<kStorage>(first, 0, run.lanes), b = LoadLanes<kStorage>(second, 0, run.lanes);
    const Pairs pairs = PairsOf<kTwoParts>(a, b);
    _mm512_store_si512(reinterpret_cast<__m512i*>(out), pairs.high);
    if constexpr (kTwoParts)
      _mm512_store_si512(reinterpret_cast<__m512i*>(out + run.low), pairs.low);
  }
}

// --- dy: transposed, pairs side by side ----------------------------------------------------------

// out[c], c < 8: channels c and c + 8 of 16 pixels of one of the pairs' images, as four lanes of
// eight values:  pixels 0-7 of c | 0-7 of c + 8 | 8-15 of c | 8-15 of c + 8
template <bool kWhole>
ADA_INLINE void Transpose16(const std::byte* row, const std::ptrdiff_t* offsets, __mmask16 lanes,
                            __m512i* out) {
  const auto load = [&](int k) __attribute__((always_inline)) {
    if constexpr (kWhole)
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row + offsets[k]));
    else
      return _mm256_maskz_loadu_epi16(lanes, row + offsets[k]);
  };
  __m512i r[8], s[8];
  for (int k = 0; k < 8; ++k)
    r[k] = _mm512_inserti64x4(_mm512_castsi256_si512(load(k)), load(k + 8), 1);
  for (int k = 0; k < 8; k += 2) {
    s[k] = _mm512_unpacklo_epi16(r[k], r[k + 1]);
    s[k + 1] = _mm512_unpackhi_epi16(r[k], r[k + 1]);
  }
  for (int k = 0; k < 8; k += 4)
    for (int i = 0; i < 2; ++i) {
      r[k + 2 * i] = _mm512_unpacklo_epi32(s[k + i], s[k + 2 + i]);
      r[k + 2 * i + 1] = _mm512_unpackhi_epi32(s[k + i], s[k + 2 + i]);
    }
  for (int k = 0; k < 4; ++k) {
    out[2 * k] = _mm512_unpacklo_epi64(r[k], r[k + 4]);
    out[2 * k + 1] = _mm512_unpackhi_epi64(r[k], r[k + 4]);
  }
}

template <Storage kStorage>
ADA_INLINE F LoadHalf(const __m512i* values, int half, __mmask16 has) {
  const __m256i codes = _mm256_load_si256(reinterpret_cast<const __m256i*>(values) + half);
  if constexpr (kStorage == Storage::kF16)
    return (F)_mm512_maskz_cvtph_ps(has, codes);
  else
    return (F)_mm512_maskz_slli_epi32(has, _mm512_cvtepu16_epi32(codes), 16);
}
// The 8 bits of a half, for both channels that lie in one vector.
ADA_INLINE __mmask16 HalfMask(unsigned mask, int half) {
  const unsigned m = mask >> (8 * half) & 0xffu;
  return static_cast<__mmask16>(m | m << 8);
}
ADA_INLINE void StoreHalves(std::byte* lower, std::byte* upper, __m512i x) {
  _mm256_store_si256(reinterpret_cast<__m256i*>(lower), _mm512_castsi512_si256(x));
  _mm256_store_si256(reinterpret_cast<__m256i*>(upper), _mm512_extracti64x4_epi64(x, 1));
}

// Packs the pairs of one half of the transposed pixels.
template <Storage kStorage, bool kTwoParts>
ADA_INLINE void PackHalf(const PairBlock& block, int half) {
  const __mmask16 has_first = HalfMask(block.offsets->has_first, half);
  const __mmask16 has_second = HalfMask(block.offsets->has_second, half);
  for (int c = 0; c < 8; ++c) {
    const Pairs pairs = PairsOf<kTwoParts>(LoadHalf<kStorage>(block.first + c, half, has_first),
                                           LoadHalf<kStorage>(block.second + c, half, has_second));
    std::byte* out = block.out + 64 * c + 32 * half;
    StoreHalves(out, out + 512, pairs.high);
    if constexpr (kTwoParts) StoreHalves(out + 1024, out + 1024 + 512, pairs.low);
  }
}

// Part 0, 1: the first and second images are transposed; 2, 3: halves of the pixels become pairs.
template <Storage kStorage, bool kTwoParts>
void PackBlock(PairBlock& block, int part) {
  if (part >= 2) return PackHalf<kStorage, kTwoParts>(block, part - 2);
  const std::ptrdiff_t* offsets = part == 0 ? block.offsets->first : block.offsets->second;
  __m512i* to = part == 0 ? block.first : block.second;
  if (block.lanes == 0xffff)
    Transpose16<true>(block.row, offsets, block.lanes, to);
  else
    Transpose16<false>(block.row, offsets, block.lanes, to);
}
// The same of fp32, four pairs a part, whose values are scattered one by one.
template <bool kTwoParts>
void PackBlockF32(PairBlock& block, int part) {
  const __m512i offsets = _mm512_slli_epi32((__m512i)LaneNumbers(), 4);
  for (int k = 4 * part; k < 4 * part + 4; ++k) {
    const auto load = [&](const std::ptrdiff_t* offsets, unsigned has) {
      const auto lanes = static_cast<__mmask16>((has >> k & 1u) != 0 ? block.lanes : 0);
      return LoadLanes<Storage::kF32>(block.row + offsets[k], 0, lanes);
    };
    const Pairs pairs = PairsOf<kTwoParts>(load(block.offsets->first, block.offsets->has_first),
                                           load(block.offsets->second, block.offsets->has_second));
    _mm512_i32scatter_epi32(block.out + 4 * k, offsets, pairs.high, 4);
    if constexpr (kTwoParts)
      _mm512_i32scatter_epi32(block.out + 1024 + 4 * k, offsets, pairs.low, 4);
  }
}

// One for a call of the kernel. Begin hands it a strip; the kernel calls Step while the matrix unit
// works, and again until left() is 0 before it reads the strip.
class GradientPacking {
 public:
  // Clears what stays zero in the scratch memory.
  explicit GradientPacking(const WeightGradientArgs& args);

  // From now on steps pack the strip of rows first .. end of dy, and the rows of x that it reads
  // and no strip before it.
  void Begin(int first, int end);
  // Steps left, of about 100 instructions.
  int left() const { return left_; }
  void Step();

  // The strip that was begun last.
  const std::byte* strip() const { return dy_strip_; }
  // Row `row` of dy and row `kernel_row` of the kernel: the row of x, or null outside the image.
  const std::byte* RowOfX(int row, int kernel_row) const;

 private:
  static constexpr int kPixels = 8, kParts = 4;  // packed pixels of a step, steps of a block

  void ClearPadding();
  void SetOffsets(GradientOffsets* table, int images);
  GradientOffsets* Table(int which) const;
  bool Reads(int number) const;
  const std::byte* ImageRow(int image) const;
  void NextRow();
  void BeginRow();
  void BeginPlane();
  void StepX();
  void BeginBlock();
  void StepDy();

  const WeightGradientArgs& args_;
  const WeightGradientShape& shape_;
  const WeightGradientPlan& plan_;
  const int rows_of_set_, outs_;
  int row_steps_ = 0;  // of a row of x
  int left_ = 0;

  int x_row_ = 0, x_end_ = 0, x_plane_ = 0, x_left_ = 0;  // x_left_: packed pixels of the plane
  const std::byte *x_first_[16] = {}, *x_second_[16] = {};
  PairRun run_;
  void (*pack_whole_)(const PairRun&) = nullptr;
  void (*pack_lanes_)(const PairRun&) = nullptr;

  int dy_row_ = 0, dy_block_ = 0, dy_out_ = 0, dy_part_ = 0;
  std::byte* dy_strip_ = nullptr;
  PairBlock block_;
  void (*pack_block_)(PairBlock&, int part) = nullptr;
};

}  // namespace ada::backend::cpu::ADA_ISA
