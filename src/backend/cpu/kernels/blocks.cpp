// Rounding under scales of blocks; see block_kernels.h. Sixteen blocks have their scales computed
// side by side: those of sixteen lines where neighbors in memory are of different lines, else those
// of sixteen blocks that follow each other. And the transform of operands.
#include "backend/cpu/kernels/block_rounder.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

// --- Blocks whose lines lie side by side ---

// Gives those of lines (first, row) to (first + lanes - 1, row).
ADA_OUTLINE TensorFactors TensorsOfLanes(const BlockArgs& args, std::int64_t first,
                                         std::int64_t row, int lanes) {
  return TensorsOf(args, lanes, [&](int k) { return (first + k) * args.layout.rows + row; });
}

// Sixteen neighbors in memory are of sixteen lines: matrix m + 1 is one value on.
template <class From, class To, bool kStochastic, bool kDivides>
void QuantizeLanes(const BlockArgs& args, const BlockRules& rules) {
  const BlockLayout& layout = args.layout;
  const Rounder16<kStochastic, kDivides> round(rules, args);
  const TensorSpan from = args.from, to = args.to;
  const std::int64_t block = args.format.block, tall = args.format.square ? block : 1;
  // A tile is `tall` lines high where blocks are square, else one; the last ones of a side are cut.
  const auto tile = [&](std::int64_t row, std::int64_t begin) __attribute__((always_inline)) {
    const std::int64_t rows = row + tall < layout.rows ? tall : layout.rows - row;
    const std::int64_t columns = begin + block < layout.length ? block : layout.length - begin;
    const std::int64_t first = row * layout.row_stride + begin * layout.stride;
    ForValues(
        layout.matrices, [&](std::int64_t m, int lanes, auto tail) __attribute__((always_inline)) {
          constexpr bool kTail = decltype(tail)::value;
          U largest{};
          // First pass: the largest magnitude of each of the sixteen blocks.
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t line = first + r * layout.row_stride + m;
            for (std::int64_t i = 0; i < columns; ++i)
              largest = MaxBits(
                  largest, Magnitude(LoadAt<From, kTail>(from, line + i * layout.stride, lanes)));
          }
          const BlockFactors factors = FactorsOf(rules, largest, args.tensor_part, [&] {
            return TensorsOfLanes(args, m, row, lanes);
          });
          // Second pass: every value once more, rounded under its block's scale. The block is still
          // in the cache.
          const F encode = factors.encode, decode = factors.decode;
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::int64_t begin_at = first + r * layout.row_stride + m;
            for (std::int64_t i = 0; i < columns; i += round.kGroup) {
              const std::int64_t group = begin_at + i * layout.stride;
              U words[round.kGroup] = {};
              round.WordsOf(group, layout.stride, words);
              for (std::int64_t g = 0; g < round.kGroup && i + g < columns; ++g) {
                const std::int64_t at = group + g * layout.stride;
                StoreAt<To, kTail>(
                    to, at, lanes,
                    round(LoadAt<From, kTail>(from, at, lanes), encode, decode, words[g]));
              }
            }
          }
        });
  };
  for (std::int64_t row = 0; row < layout.rows; row += tall)
    for (std::int64_t begin = 0; begin < layout.length; begin += block) tile(row, begin);
}

// --- Blocks of values that follow each other ---

// LargestOf goes through memory; a block has only a few vectors, so that this matters here.
ADA_INLINE std::uint32_t LargestLane(U v) {
#if defined(__AVX512F__)
  return _mm512_reduce_max_epu32((__m512i)v);
#elif defined(__AVX2__)
  const __m256i eight = _mm256_max_epu32((__m256i)v.low, (__m256i)v.high);
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(four));
#else
  return LargestOf(v);
#endif
}

// A block, or a tile of them, whose lines follow each other in memory.
struct Tile {
  std::int64_t at, rows, columns;
  std::int64_t line;  // of its first row, [matrices, rows]
};
ADA_OUTLINE TensorFactors TensorsOfTiles(const BlockArgs& args, const Tile* tiles, int count) {
  return TensorsOf(args, count, [&](int k) { return tiles[k].line; });
}

// Up to sixteen values of one of sixteen tiles, which follow each other.
struct Piece {
  std::int64_t at;
  int lanes, tile;
};
// Cuts tiles into pieces, some at a time: what a loop over them needs is then loaded once for all.
// Two passes go over the same pieces (the largest magnitude, then rounding): where all fit into
// `pieces` the second one finds them there.
class PieceWalk {
 public:
  PieceWalk(const Tile* tiles, int count, std::int64_t row_stride)
      : tiles_(tiles), count_(count), row_stride_(row_stride) {}
  // Fills `pieces` from the first on, or with those after the last ones, and returns how many they
  // are; 0: there are no more.
  ADA_INLINE int First() {
    if (all_ > 0) return all_;
    tile_ = 0;
    const int n = Next();
    if (tile_ == count_) all_ = n;
    return n;
  }
  ADA_INLINE int Next() { return tile_ < count_ ? Fill() : 0; }
  static constexpr int kPieces = 64;
  Piece pieces[kPieces];

 private:
  ADA_OUTLINE int Fill() {
    int n = 0;
    for (; tile_ < count_ && n < kPieces; ++n) {
      const Tile& tile = tiles_[tile_];
      const std::int64_t left = tile.columns - column_;
      pieces[n] = {tile.at + row_ * row_stride_ + column_,
                   static_cast<int>(left < kLanes ? left : kLanes), tile_};
      column_ += kLanes;
      if (column_ < tile.columns) continue;
      column_ = 0;
      if (++row_ < tile.rows) continue;
      row_ = 0, ++tile_;
    }
    return n;
  }

  const Tile* tiles_;
  int count_;
  std::int64_t row_stride_;
  int tile_ = 0, all_ = 0;  // all_: how many pieces there are, where `pieces` holds them all
  std::int64_t row_ = 0, column_ = 0;  // of the next piece, in its tile
};

template <class Mode>
ADA_INLINE F LoadPiece(const TensorSpan& from, const Piece& piece) {
  return piece.lanes == kLanes ? LoadAt<Mode, false>(from, piece.at, kLanes)
                               : LoadAt<Mode, true>(from, piece.at, piece.lanes);
}
template <class Mode>
ADA_INLINE void StorePiece(const TensorSpan& to, const Piece& piece, F v) {
  piece.lanes == kLanes ? StoreAt<Mode, false>(to, piece.at, kLanes, v)
                        : StoreAt<Mode, true>(to, piece.at, piece.lanes, v);
}

// Random words of kGroup pieces, or of as many as there are. Words of several
// pieces are computed together if the pieces are evenly spaced, as they are within
// a tile.
template <class Round>
ADA_INLINE void WordsOfPieces(const Round& round, const Piece* pieces, int count, U* words) {
  if constexpr (Round::kGroup == 1) return round.WordsOf(pieces[0].at, kLanes, words);
  const std::int64_t step = count > 1 ? pieces[1].at - pieces[0].at : kLanes;
  bool even = true;
  for (int g = 2; g < count; ++g) even = even && pieces[g].at - pieces[g - 1].at == step;
  if (even) return round.WordsOf(pieces[0].at, step, words);
  for (int g = 0; g < count; ++g) {
    U some[Round::kGroup];
    round.WordsOf(pieces[g].at, kLanes, some);
    words[g] = some[0];
  }
}

// The largest magnitudes of sixteen tiles.
// A vector for each tile collects lane by lane; lanes are joined at the end.
template <class From>
ADA_INLINE U LargestOfTiles(const TensorSpan& from, PieceWalk& walk, int count) {
  U most[kLanes] = {};
  for (int n = walk.First(); n > 0; n = walk.Next())
    for (int v = 0; v < n; ++v) {
      const Piece piece = walk.pieces[v];
      most[piece.tile] = MaxBits(most[piece.tile], Magnitude(LoadPiece<From>(from, piece)));
    }
  std::uint32_t largest[kLanes] = {};
  for (int k = 0; k < count; ++k) largest[k] = LargestLane(most[k]);
  U all;
  LoadParts(largest, all);
  return all;
}

// Blocks of values that follow each other in memory, sixteen at a time, whatever line they are of.
template <class From, class To, bool kStochastic, bool kDivides>
void QuantizeLines(const BlockArgs& args, const BlockRules& rules) {
  using Round = Rounder16<kStochastic, kDivides>;
  const BlockLayout& layout = args.layout;
  const Round round(rules, args);
  const TensorSpan from = args.from, to = args.to;
  const std::int64_t block = args.format.block, tall = args.format.square ? block : 1;
  const std::int64_t rows = (layout.rows + tall - 1) / tall;
  const std::int64_t columns = (layout.length + block - 1) / block;
  const std::int64_t all = layout.matrices * rows * columns;
  // Tiles are numbered by matrix, row and column of tiles; sixteen of them may cross from one
  // matrix into the next.
  Tile tiles[kLanes];
  std::int64_t m = 0, row = 0, begin = 0;  // of the next tile
  for (std::int64_t first = 0; first < all; first += kLanes) {
    const int count = static_cast<int>(all - first < kLanes ? all - first : kLanes);
    for (int k = 0; k < count; ++k) {
      tiles[k] = {m * layout.matrix_stride + row * layout.row_stride + begin,
                  row + tall < layout.rows ? tall : layout.rows - row,
                  begin + block < layout.length ? block : layout.length - begin,
                  m * layout.rows + row};
      begin += block;
      if (begin < layout.length) continue;
      begin = 0, row += tall;
      if (row < layout.rows) continue;
      row = 0, ++m;
    }
    PieceWalk walk(tiles, count, layout.row_stride);
    const BlockFactors factors =
        FactorsOf(rules, LargestOfTiles<From>(from, walk, count), args.tensor_part,
                  [&] { return TensorsOfTiles(args, tiles, count); });
    float encode[kLanes], decode[kLanes];
    StoreF(encode, factors.encode), StoreF(decode, factors.decode);
    for (int n = walk.First(); n > 0; n = walk.Next())
      for (int v = 0; v < n; v += Round::kGroup) {
        const Piece* const group = walk.pieces + v;
        const int pieces = n - v < Round::kGroup ? n - v : Round::kGroup;
        U words[Round::kGroup] = {};
        WordsOfPieces(round, group, pieces, words);
        for (int g = 0; g < pieces; ++g)
          StorePiece<To>(to, group[g],
                         round(LoadPiece<From>(from, group[g]), Fill(encode[group[g].tile]),
                               Fill(decode[group[g].tile]), words[g]));
      }
  }
}

TensorSpan SpanOf(const float* values) { return {const_cast<float*>(values), Storage::kF32}; }

// stride 1: values of a line are neighbors in memory. Else matrices are: one of the two is 1
// (BlockArgs::layout).
template <class To, bool kStochastic, bool kDivides>
void QuantizeAs(const BlockArgs& args, const BlockRules& rules) {
  ForStorage(args.from.storage, [&](auto mode) {
    if (args.layout.stride == 1)
      QuantizeLines<decltype(mode), To, kStochastic, kDivides>(args, rules);
    else
      QuantizeLanes<decltype(mode), To, kStochastic, kDivides>(args, rules);
  });
}

void Quantize(const BlockArgs& args) {
  const BlockRules rules = RulesOf(args.format, args.bf16_input);
  if (rules.grid.divides)  // by fp32 numbers, of which bf16 holds few
    args.stochastic ? QuantizeAs<ModeF32, true, true>(args, rules)
                    : QuantizeAs<ModeF32, false, true>(args, rules);
  else if (args.to.storage == Storage::kBF16)
    args.stochastic ? QuantizeAs<ModeBF16, true, false>(args, rules)
                    : QuantizeAs<ModeBF16, false, false>(args, rules);
  else
    args.stochastic ? QuantizeAs<ModeF32, true, false>(args, rules)
                    : QuantizeAs<ModeF32, false, false>(args, rules);
}

// Bits travel as fp32 lanes, which loads and stores copy as they are.
void LargestEach(const float* x, std::uint32_t* largest, std::int64_t n) {
  const TensorSpan from = SpanOf(x), to = SpanOf(reinterpret_cast<const float*>(largest));
  ForValues(
      n, [&](std::int64_t i, int lanes, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        const U u = Magnitude(LoadAt<ModeF32, kTail>(from, i, lanes));
        const U before = Bits(LoadAt<ModeF32, kTail>(to, i, lanes));
        StoreAt<ModeF32, kTail>(to, i, lanes, Float(Select((I)u > (I)before, u, before)));
      });
}

// A butterfly over kSize rows, all of them in registers where there are 16; the factor keeps the
// length of a column.
template <class From, class To, int kSize>
void HadamardOf(const float* signs, const TensorSpan& from, const TensorSpan& to, std::int64_t step,
                std::int64_t lanes, const NumberFormat& format) {
  const bool rounds = !(format == kFp32);
  const Grid grid(format);
  ForValues(
      lanes, [&](std::int64_t at, int count, auto tail) __attribute__((always_inline)) {
        constexpr bool kTail = decltype(tail)::value;
        F rows[kSize];
        for (int i = 0; i < kSize; ++i)
          rows[i] = LoadAt<From, kTail>(from, at + i * step, count) * signs[i];
#pragma GCC unroll 4
        for (int half = 1; half < kSize; half *= 2)
#pragma GCC unroll 16
          for (int i = 0; i < kSize; ++i) {
            if ((i & half) != 0) continue;
            const F sum = rows[i] + rows[i + half], difference = rows[i] - rows[i + half];
            rows[i] = sum, rows[i + half] = difference;
          }
        for (int i = 0; i < kSize; ++i) {
          const F v = rows[i] * HadamardFactor(kSize);
          StoreAt<To, kTail>(to, at + i * step, count, rounds ? RoundToGrid(v, grid) : v);
        }
      });
}

void Hadamard(const std::vector<float>& signs, const TensorSpan& from, const TensorSpan& to,
              std::int64_t step, std::int64_t lanes, const NumberFormat& format) {
  const auto as = [&](auto from_mode, auto to_mode) {
    using From = decltype(from_mode);
    using To = decltype(to_mode);
    const float* const s = signs.data();
    switch (signs.size()) {
      case 16:
        return HadamardOf<From, To, 16>(s, from, to, step, lanes, format);
      case 32:
        return HadamardOf<From, To, 32>(s, from, to, step, lanes, format);
      case 64:
        return HadamardOf<From, To, 64>(s, from, to, step, lanes, format);
      default:
        return HadamardOf<From, To, 128>(s, from, to, step, lanes, format);
    }
  };
  ForStorage(from.storage, [&](auto mode) {
    to.storage == Storage::kBF16 ? as(mode, ModeBF16{}) : as(mode, ModeF32{});
  });
}

}  // namespace

const BlockKernels kBlockTable = {Quantize, LargestEach, Hadamard};

}  // namespace ada::backend::cpu::ADA_ISA
