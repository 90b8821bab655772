// The weight gradient on AMX tiles (partial_gradients.h), strip by strip of a few rows of dy.
// While the matrix unit is busy with one strip, the vector units pack the next:
//
//   strip 0   pack
//   strip 1          pack   pack
//   products         group 0, group 1, ... of strip 0     of strip 1
//
// A group's sums stay in tiles while all blocks of the strip pass; between strips they wait in the
// partial gradient.
#include <type_traits>
#include <utility>

#include "backend/cpu/matmul/kernels/amx/bf16_split.h"
#include "backend/cpu/matmul/kernels/amx/weight_gradient_pack.h"

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr std::size_t kTileBytes = 1024;

// What all groups of a strip share.
struct Strip {
  const std::byte* dy;
  const std::byte* const* x;  // [rows][kernel_h], null: padding
  int rows;
  bool zero;  // the sums begin
  int steps;  // of packing after each block
};

// f(0), f(1), ...: constants.
template <int... kI, class F>
ADA_INLINE void Repeat(std::integer_sequence<int, kI...>, F&& f) {
  (f(std::integral_constant<int, kI>{}), ...);
}
template <int kCount, class F>
ADA_INLINE void For(F&& f) {
  Repeat(std::make_integer_sequence<int, kCount>{}, f);
}

// One block: kOuts tiles of dy a part, one after the other, times kColumns of x.
//
// Tiles of dy stay while those of x take turns. Two of each have no room for both parts of all
// four: high * high, high * low, low * low, low * high.
//
// After every fourth multiplication (64 cycles) there is time for a step of packing: `hook`.
template <int kOuts, int kColumns, int kDyParts, int kXParts, class Hook>
struct Block {
  static constexpr int kSums = kOuts * kColumns, kProducts = kSums * kDyParts * kXParts;
  static constexpr bool kFour = kOuts == 2 && kColumns == 2, kSix = kOuts == 2 && kColumns == 3;
  static constexpr int kHeld = kFour ? 2 : kSix ? 1 : kOuts * kDyParts;
  static constexpr int kFirstX = kSums + kHeld, kXTiles = 8 - kFirstX;

  const std::byte* dy;
  const std::byte* x[kColumns];
  std::size_t low;  // from a tile of x to that of its low parts
  Hook hook;

  // Product number kNumber of the block.
  template <int kNumber, int kSum, int kDy, int kX>
  ADA_INLINE void Product() const {
    MultiplyTiles<kSum, kDy, kX>();
    if constexpr (kNumber % 4 == 3 || (kProducts < 4 && kNumber == kProducts - 1)) hook();
  }
  template <int kPart>
  ADA_INLINE void LoadDy() const {
    For<2>([&](auto a) __attribute__((always_inline)) {
      LoadTile<kSums + a>(dy + (a * kDyParts + kPart) * kTileBytes);
    });
  }
  template <int kPart>
  ADA_INLINE void LoadX() const {
    For<2>([&](auto b)
               __attribute__((always_inline)) { LoadTile<kFirstX + b>(x[b] + kPart * low); });
  }
  ADA_INLINE void MultiplyFour() const {
    For<4>([&](auto i)
               __attribute__((always_inline)) { Product<i, i, kSums + i / 2, kFirstX + i % 2>(); });
  }
  ADA_INLINE void TwoByTwo() const {
    LoadDy<0>(), LoadX<0>(), MultiplyFour();
    if constexpr (kXParts == 2) LoadX<1>(), MultiplyFour();
    if constexpr (kDyParts == 2) {
      LoadDy<1>(), MultiplyFour();
      if constexpr (kXParts == 2) LoadX<0>(), MultiplyFour();
    }
  }
  // One tile of dy at a time.
  ADA_INLINE void TwoByThree() const {
    For<2 * kDyParts>([&](auto t) __attribute__((always_inline)) {
      LoadTile<6>(dy + t * kTileBytes);
      For<3 * kXParts>([&](auto i) __attribute__((always_inline)) {
        LoadTile<7>(x[i % 3] + i / 3 * low);
        Product<t * 3 * kXParts + i, t / kDyParts * 3 + i % 3, 6, 7>();
      });
    });
  }
  ADA_INLINE void Others() const {
    For<kHeld>([&](auto t)
                   __attribute__((always_inline)) { LoadTile<kSums + t>(dy + t * kTileBytes); });
    For<kColumns * kXParts>([&](auto i) __attribute__((always_inline)) {
      constexpr int kColumn = i % kColumns, kTile = kFirstX + i % kXTiles;
      LoadTile<kTile>(x[kColumn] + i / kColumns * low);
      For<kHeld>([&](auto t) __attribute__((always_inline)) {
        Product<i * kHeld + t, t / kDyParts * kColumns + kColumn, kSums + t, kTile>();
      });
    });
  }
  ADA_INLINE void Multiply() const {
    if constexpr (kFour)
      TwoByTwo();
    else if constexpr (kSix)
      TwoByThree();
    else
      Others();
  }
};

template <int kSums>
ADA_INLINE void BeginSums(const float* sums, bool zero) {
  For<kSums>([&](auto i) __attribute__((always_inline)) {
    if (zero)
      ZeroTile<i>();
    else
      LoadTile<i>(sums + 256 * i);
  });
}
template <int kSums>
ADA_INLINE void EndSums(float* sums) {
  For<kSums>([&](auto i) __attribute__((always_inline)) { StoreTile<i>(sums + 256 * i); });
}

// All blocks of a strip for one group. Blocks before the first and after the last that any column
// meets are left out; a row of x outside the image is a plane of zeros.
template <int kOuts, int kColumns, int kDyParts, int kXParts>
void Sum(const WeightGradientArgs& args, const GradientGroup& group, const Strip& strip,
         GradientPacking& packing) {
  const WeightGradientPlan& plan = *args.plan;
  const GradientColumn* columns = args.columns + group.column;
  const int out_blocks = (args.shape->out_c + 15) / 16;
  std::size_t offsets[kColumns];
  int first = plan.blocks, last = 0;
  for (int b = 0; b < kColumns; ++b) {
    const GradientColumn& c = columns[b];
    const int begin = c.first * plan.pairs / 16, end = (c.last * plan.pairs + 15) / 16;
    first = begin < first ? begin : first, last = end > last ? end : last;
    offsets[b] = static_cast<std::size_t>(c.plane * kXParts) * plan.plane_bytes +
                 static_cast<std::size_t>(c.shift * plan.pairs) * 64;
  }
  const std::size_t dy_step = static_cast<std::size_t>(out_blocks * kDyParts) * kTileBytes;
  const auto hook = [ steps = strip.steps, &packing ]() __attribute__((always_inline)) {
    for (int s = 0; s < steps && packing.left() > 0; ++s) packing.Step();
  };
  Block<kOuts, kColumns, kDyParts, kXParts, decltype(hook)> block{{}, {}, plan.plane_bytes, hook};
  float* const sums = args.partial + 256 * static_cast<std::int64_t>(group.tile);
  BeginSums<kOuts * kColumns>(sums, strip.zero);
  for (int row = 0; row < strip.rows; ++row) {
    const std::byte* const* x = strip.x + row * args.shape->kernel_h;
    bool any = false;
    for (int b = 0; b < kColumns; ++b) {
      const std::byte* start = x[columns[b].row];
      any = any || start != nullptr;
      block.x[b] = (start != nullptr ? start + offsets[b] : args.scratch + plan.zeros) +
                   static_cast<std::size_t>(first) * kTileBytes;
    }
    if (!any) continue;
    block.dy = strip.dy + static_cast<std::size_t>(row * plan.blocks + first) * dy_step +
               static_cast<std::size_t>(group.out * kDyParts) * kTileBytes;
    for (int k = first; k < last; ++k) {
      block.Multiply();
      block.dy += dy_step;
      for (int b = 0; b < kColumns; ++b) block.x[b] += kTileBytes;
    }
  }
  EndSums<kOuts * kColumns>(sums);
}

template <int kDyParts, int kXParts>
void SumGroup(const WeightGradientArgs& args, const GradientGroup& group, const Strip& strip,
              GradientPacking& packing) {
  switch (group.outs * 8 + group.columns) {
    case 8 + 1:
      return Sum<1, 1, kDyParts, kXParts>(args, group, strip, packing);
    case 8 + 2:
      return Sum<1, 2, kDyParts, kXParts>(args, group, strip, packing);
    case 8 + 3:
      return Sum<1, 3, kDyParts, kXParts>(args, group, strip, packing);
    case 8 + 4:
      return Sum<1, 4, kDyParts, kXParts>(args, group, strip, packing);
    case 8 + 5:
      return Sum<1, 5, kDyParts, kXParts>(args, group, strip, packing);
    case 16 + 1:
      return Sum<2, 1, kDyParts, kXParts>(args, group, strip, packing);
    case 16 + 2:
      return Sum<2, 2, kDyParts, kXParts>(args, group, strip, packing);
    default:
      return Sum<2, 3, kDyParts, kXParts>(args, group, strip, packing);
  }
}

// db: dy times ones.
template <int kDyParts>
void SumBias(const WeightGradientArgs& args, const Strip& strip) {
  alignas(64) std::uint16_t ones[512];
  for (std::uint16_t& one : ones) one = 0x3f80;
  LoadTile<2>(ones);
  const int out_blocks = (args.shape->out_c + 15) / 16, blocks = strip.rows * args.plan->blocks;
  for (int out = 0; out < out_blocks; ++out) {
    float* const sums = args.partial + 256 * (static_cast<std::int64_t>(args.tiles) + out);
    BeginSums<1>(sums, strip.zero);
    for (int k = 0; k < blocks; ++k)
      For<kDyParts>([&](auto part) __attribute__((always_inline)) {
        LoadTile<1>(strip.dy + static_cast<std::size_t>((k * out_blocks + out) * kDyParts + part) *
                                   kTileBytes);
        MultiplyTiles<0, 1, 2>();
      });
    EndSums<1>(sums);
  }
}

template <int kDyParts, int kXParts>
void SumStrip(const WeightGradientArgs& args, const Strip& strip, GradientPacking& packing) {
  for (int g = 0; g < args.group_count; ++g)
    SumGroup<kDyParts, kXParts>(args, args.groups[g], strip, packing);
  if (args.shape->bias) SumBias<kDyParts>(args, strip);
}

using StripFunction = void (*)(const WeightGradientArgs&, const Strip&, GradientPacking&);
// The numbers of parts are fixed for a call: one branch, outside of all loops.
StripFunction FunctionFor(const WeightGradientShape& s) {
  if (s.dy_parts == 2) return s.x_parts == 2 ? SumStrip<2, 2> : SumStrip<2, 1>;
  return s.x_parts == 2 ? SumStrip<1, 2> : SumStrip<1, 1>;
}

}  // namespace

void WeightGradient(const WeightGradientArgs& args) {
  const AmxSession tiles;
  GradientPacking packing(args);
  const WeightGradientPlan& plan = *args.plan;
  const int rows = plan.sets * args.shape->out_h, kernel_h = args.shape->kernel_h;
  auto* const x = reinterpret_cast<const std::byte**>(args.scratch + plan.rows);
  const StripFunction sum = FunctionFor(*args.shape);
  packing.Begin(0, StripEnd(plan, 0, rows));
  for (int first = 0, end = 0; first < rows; first = end) {
    while (packing.left() > 0) packing.Step();
    end = StripEnd(plan, first, rows);
    const std::byte* dy = packing.strip();
    for (int row = first; row < end; ++row)
      for (int k = 0; k < kernel_h; ++k) x[(row - first) * kernel_h + k] = packing.RowOfX(row, k);
    if (end < rows) packing.Begin(end, StripEnd(plan, end, rows));
    const std::int64_t products = std::int64_t{end - first} * plan.blocks * args.tiles *
                                  args.shape->x_parts * args.shape->dy_parts;
    const auto steps = static_cast<int>(packing.left() / (products / 4 + 1)) + 1;
    sum(args, {dy, x, end - first, args.first && first == 0, steps}, packing);
  }
}

}  // namespace ada::backend::cpu::ADA_ISA
