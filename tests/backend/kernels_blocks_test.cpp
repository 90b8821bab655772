// The kernels of block-scaled formats, of every instruction set, beside the definition value by
// value (number/blocks): layouts of every kind, values of every size, zeros, inf and NaN.
#include <doctest/doctest.h>

#include <bit>
#include <optional>

#include "backend/cpu/block_kernels.h"
#include "backend/isa_record.h"
#include "number/random.h"

namespace ada::backend::test {
namespace {

// Formats of every scale, rule and element that a kernel serves, in lines and in tiles.
std::vector<BlockFormat> Served() {
  std::vector<BlockFormat> formats;
  const auto add = [&](const NumberFormat& element, BlockScale scale, auto change) {
    formats.push_back(DefaultBlockFormat(element, scale));
    change(formats.back());
  };
  const auto plain = [](BlockFormat&) {};
  for (const NamedFormat& element : BlockElements()) {
    for (const BlockRule rule :
         {BlockRule::kFloor, BlockRule::kCeil, BlockRule::kEven, BlockRule::kRceil})
      add(element.format, BlockScale::kE8M0, [&](BlockFormat& f) { f.rule = rule; });
  }
  for (const BlockRule rule : {BlockRule::kTe, BlockRule::kTorchao, BlockRule::kModelopt})
    add(kFp4E2M1, BlockScale::kFp8E4M3, [&](BlockFormat& f) { f.rule = rule; });
  add(kFp4E2M1, BlockScale::kFp8E4M3, [](BlockFormat& f) { f.tensor_scale = false; });
  add(kFp4E2M1, BlockScale::kFp8E4M3, [](BlockFormat& f) { f.row_scaled = true; });
  add(kFp8E4M3, BlockScale::kFp32, plain);
  for (const NumberFormat& element : {kFp8E5M2, kFp4E2M1})
    add(element, BlockScale::kFp32, [](BlockFormat& f) { f.power_of_two = true; });
  for (std::size_t i = 0, n = formats.size(); i < n; ++i) {
    formats.push_back(formats[i]);
    formats.back().block = i % 2 == 0 ? 16 : 10;
    formats.back().square = !formats[i].row_scaled;
  }
  return formats;
}

// Values of many sizes, rows of zeros, subnormal numbers, and in `wild` ones inf and NaN.
Values Sample(std::int64_t n, bool wild, std::uint64_t seed) {
  RandomStream random(seed, StreamId("block kernels"));
  Values values;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto whole = static_cast<float>(static_cast<std::int32_t>(random.NextU32()));
    const int spread = i / 50 % 3 == 0 ? 250 : 12;
    const int power =
        static_cast<int>(random.NextU32() % static_cast<unsigned>(spread)) - spread / 2;
    float x = std::ldexp(whole, power - 31);
    if (i / 40 % 7 == 6) x = std::copysign(0.0f, x);
    // The largest and the smallest element times 2^-127, where rule rceil rounds up or not.
    if (i / 40 % 7 == 5) {
      const bool fp8 = i / 280 % 2 == 0;
      x = i % 40 == 8   ? std::ldexp(fp8 ? 448.0f : 6.0f, -127)
          : i % 40 == 9 ? std::ldexp(1.0f, fp8 ? -136 : -128)
                        : 0;
      values.push_back(x);
      continue;
    }
    if (random.NextU32() % 40 == 0) x = std::ldexp(1.5f, power / 2);  // ties
    if (wild && random.NextU32() % 300 == 0) x = i % 2 == 0 ? INFINITY : NAN;
    values.push_back(x);
  }
  return values;
}

struct Place {
  const char* name;
  BlockLayout layout;
  std::int64_t values;
};
std::vector<Place> Places() {
  return {{"lines", {1, 5, 70, 0, 70, 1}, 350},
          {"many blocks of a line", {1, 2, 700, 0, 700, 1}, 1400},
          {"lines in groups", {3, 20, 21, 21, 63, 1}, 1260},
          // The row after the last one of a tile, or of a group, lies before it.
          {"lines in groups, in fours", {3, 29, 20, 20, 60, 1}, 1740},
          {"columns", {37, 1, 70, 1, 0, 37}, 2590},
          {"columns of tiles", {1, 37, 40, 0, 1, 37}, 1480},
          {"taps", {9, 20, 12, 1, 108, 9}, 2160}};
}

// By the definition; `random`: of (7, 3) from that word on, else to nearest.
Values Defined(const BlockFormat& format, const BlockLayout& layout, const Values& input,
               float amax, bool bf16, std::optional<std::uint64_t> random) {
  Values values = input;
  if (!random) {
    QuantizeBlocks(format, layout, amax, bf16, input.data(), {values.data()}, nullptr);
    return values;
  }
  const BlockGrid grid = BlockGridOf(format, bf16);
  const std::vector<float> rows = RowAmaxesOf(layout, input.data());
  const std::int64_t tall = format.square ? format.block : 1;
  for (std::int64_t m = 0; m < layout.matrices; ++m)
    for (std::int64_t r = 0; r < layout.rows; r += tall)
      for (std::int64_t i = 0; i < layout.length; i += format.block) {
        std::vector<std::size_t> places;
        Values block;
        for (std::int64_t a = r; a < std::min(r + tall, layout.rows); ++a)
          for (std::int64_t k = i; k < std::min(i + format.block, layout.length); ++k) {
            places.push_back(static_cast<std::size_t>(m * layout.matrix_stride +
                                                      a * layout.row_stride + k * layout.stride));
            block.push_back(input[places.back()]);
          }
        const float of =
            format.row_scaled ? rows[static_cast<std::size_t>(m * layout.rows + r)] : amax;
        const BlockFactor factor = BlockFactorOf(grid, TensorFactorOf(grid, of), AmaxOf(block));
        for (const std::size_t at : places) {
          const std::uint64_t word = *random + at;
          const float scaled = Scaled(grid, factor, input[at]);
          float element =
              RoundRandomlyToGrid(grid.element, scaled, Philox(7, 3, word / 4)[word % 4]);
          if (grid.plain_zeros && !(scaled < 0) && !(scaled > 0)) element = 0;
          if (grid.nan_is_zero && std::isnan(scaled)) element = 0;
          values[at] = ValueOf(grid, factor, element);
        }
      }
  return values;
}

const cpu::BlockKernels& TableOf(const Kernels& kernels) { return cpu::BlockKernelsOf(kernels); }

void CheckQuantize(const Kernels& kernels, const BlockFormat& format, const Place& place,
                   Storage storage, std::optional<std::uint64_t> random, bool wild, bool bf16) {
  CAPTURE(static_cast<int>(storage));
  Memory from(storage, Sample(place.values, wild, 5));
  const Values input = from.Get();
  Memory to(storage, input.size());
  const float amax = AmaxOf(input);
  cpu::BlockArgs args;
  args.from = from.piece(), args.to = to.piece();
  args.layout = place.layout, args.format = format, args.bf16_input = bf16;
  std::vector<TensorFactor> tensors;
  const BlockGrid grid = BlockGridOf(format, bf16);
  for (const float of :
       format.row_scaled ? RowAmaxesOf(place.layout, input.data()) : std::vector<float>{amax})
    tensors.push_back(TensorFactorOf(grid, of));
  args.tensors = tensors.data(), args.tensor_each = format.row_scaled;
  args.stochastic = random.has_value(), args.key = 7, args.draw = 3,
  args.first = random.value_or(0);
  TableOf(kernels).quantize(args);
  const Values want = Defined(format, place.layout, input, amax, bf16, random), got = to.Get();
  std::size_t different = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    different += std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]) &&
                 !(std::isnan(got[i]) && std::isnan(want[i]));
  CHECK(different == 0);
  CHECK(to.guard_intact());
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("block kernels: every format, layout and instruction set gives the defined bits") {
    for (const Kernels* kernels : KernelSets()) {
      CAPTURE(kernels->name);
      for (const BlockFormat& format : Served()) {
        CAPTURE(FormatName(format));
        for (const Place& place : Places()) {
          CAPTURE(place.name);
          for (const int kind : {0, 1, 2, 3}) {
            CAPTURE(kind);
            // Four words are made at a time: one run begins within four, one with them.
            std::optional<std::uint64_t> random;
            if (kind >= 2) random = kind == 2 ? 11 : 12;
            const bool wild = kind % 2 == 1, bf16 = kind == 1;
            CheckQuantize(*kernels, format, place, Storage::kF32, random, wild, bf16);
            if (FitsBf16(format, true))
              CheckQuantize(*kernels, format, place, Storage::kBF16, random, wild, bf16);
          }
        }
      }
    }
  }

  TEST_CASE("block kernels: transforms of rows are the defined ones, in place too") {
    for (const Kernels* kernels : KernelSets()) {
      CAPTURE(kernels->name);
      for (const HadamardRule& rule :
           {HadamardRule{16}, {16, true}, {32, true}, {64, true}, {128, true}}) {
        const std::vector<float> signs = rule.Signs(5, 6);
        for (const std::int64_t lanes : {1, 16, 37}) {
          for (const NumberFormat& format : {kFp32, kBf16}) {
            const std::int64_t step = lanes + 3, values = rule.size * step;
            Values input = Sample(values, false, 3);
            for (float& x : input) x = RoundTo(format, x);
            Values want = input;
            HadamardInPlace(signs.data(), rule.size, want.data(), step, lanes);
            for (std::int64_t i = 0; i < values; ++i)
              if (i % step < lanes)
                want[static_cast<std::size_t>(i)] =
                    RoundTo(format, want[static_cast<std::size_t>(i)]);
            Values got = input, other = input;
            const TensorSpan wide{got.data(), Storage::kF32}, apart{other.data(), Storage::kF32};
            TableOf(*kernels).hadamard(signs, wide, wide, step, lanes, format);
            CHECK(got == want);
            if (format == kFp32) continue;
            Memory codes(Storage::kBF16, input);
            TableOf(*kernels).hadamard(signs, codes.piece(), apart, step, lanes, format);
            CHECK(other == want);
            TableOf(*kernels).hadamard(signs, codes.piece(), codes.piece(), step, lanes, format);
            CHECK(codes.Get() == want);
          }
        }
      }
    }
  }

  TEST_CASE("block kernels: largest magnitudes are merged into what is there") {
    for (const Kernels* kernels : KernelSets()) {
      for (const std::int64_t n : {1, 15, 16, 17, 100}) {
        const Values first = Sample(n, false, 1), second = Sample(n, true, 2);
        std::vector<std::uint32_t> largest(static_cast<std::size_t>(n));
        TableOf(*kernels).largest_each(first.data(), largest.data(), n);
        TableOf(*kernels).largest_each(second.data(), largest.data(), n);
        for (std::size_t i = 0; i < largest.size(); ++i)
          CHECK(largest[i] == std::max(MagnitudeBits(first[i]), MagnitudeBits(second[i])));
      }
    }
  }
}

}  // namespace ada::backend::test
