// What holds of every block-scaled format: beside the definition of the OCP's text in exact
// arithmetic, and what does not change with order, sign, place and size. tests/golden/blocks has
// what other programs give.
#include "number/blocks/block_quantizer.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "number/random.h"

namespace ada {
namespace {

std::uint32_t Bits(float x) { return std::bit_cast<std::uint32_t>(x); }

bool SameValues(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (Bits(a[i]) != Bits(b[i]) && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return true;
}

// Values of many sizes: normal ones, each row times a power of two of its own.
std::vector<float> Spread(std::int64_t rows, std::int64_t columns, int powers, std::uint64_t seed) {
  RandomStream random(seed, StreamId("blocks"));
  std::vector<float> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    const int power = static_cast<int>(random.NextU32() % (2u * static_cast<unsigned>(powers) + 1));
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto whole = static_cast<double>(static_cast<std::int32_t>(random.NextU32()));
      const int small = static_cast<int>(random.NextU32() % 8);
      values.push_back(static_cast<float>(std::ldexp(whole, power - powers - 31 - small)));
    }
  }
  return values;
}

struct Quantized {
  std::vector<float> values, scales;
  std::vector<std::uint8_t> codes;
  BlockCounts counts;
};

Quantized Quantize(const BlockFormat& format, const BlockLayout& layout,
                   const std::vector<float>& input) {
  Quantized q;
  q.values.resize(input.size());
  q.codes.resize(input.size());
  q.scales.resize(static_cast<std::size_t>(layout.blocks(format)));
  QuantizeBlocks(format, layout, AmaxOf(input), false, input.data(),
                 {q.values.data(), q.codes.data(), q.scales.data()}, &q.counts);
  return q;
}

BlockLayout Rows(std::int64_t rows, std::int64_t length, const BlockFormat& format) {
  return BlockLayoutOf({rows, length}, 1, format.square);
}

// NVFP4 with a scale of each row, by both rules that have it.
std::vector<BlockFormat> RowScaled() {
  std::vector<BlockFormat> formats(3, DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3));
  formats[1].rule = formats[2].rule = BlockRule::kFourOverSix;
  formats[2].error = BlockError::kMse, formats[2].top = 256;
  for (BlockFormat& format : formats) format.row_scaled = true;
  return formats;
}

// Formats of every kind and rule, in lines and in tiles.
std::vector<BlockFormat> Formats() {
  std::vector<BlockFormat> formats;
  for (const NamedBlockFormat& named : NamedBlockFormats())  // HiFloat4 has blocks of one size
    if (named.format.rule != BlockRule::kHiFloat4) formats.push_back(named.format);
  for (const BlockRule rule : {BlockRule::kCeil, BlockRule::kEven, BlockRule::kRceil}) {
    formats.push_back(DefaultBlockFormat(kFp8E5M2, BlockScale::kE8M0));
    formats.back().rule = rule;
  }
  for (const BlockRule rule : {BlockRule::kTorchao, BlockRule::kModelopt}) {
    formats.push_back(DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3));
    formats.back().rule = rule;
  }
  for (const BlockError error : {BlockError::kMae, BlockError::kMse}) {
    formats.push_back(DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3));
    formats.back().rule = BlockRule::kFourOverSix;
    formats.back().error = error;
    formats.back().top = error == BlockError::kMse ? 256 : 448;
  }
  formats.push_back(DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3));
  formats.back().tensor_scale = false;
  formats.push_back(DefaultBlockFormat(kFp8E4M3, BlockScale::kFp32));
  formats.back().power_of_two = true;
  for (std::size_t i = 0, n = formats.size(); i < n; ++i) {
    formats.push_back(formats[i]);
    formats.back().square = true;
    formats.back().block = 16;
  }
  for (const BlockFormat& format : RowScaled()) formats.push_back(format);
  return formats;
}

// Section 6.3 of the OCP's text in double, which holds every step exactly: the value decoded from x
// in a block whose largest magnitude is `largest`.
double ByOcp(const NumberFormat& element, double x, double largest) {
  const int exponent =
      largest == 0 ? -127 : std::max(std::ilogb(largest) - std::ilogb(element.largest()), -127);
  const double scaled = std::ldexp(x, -exponent), magnitude = std::fabs(scaled);
  if (magnitude >= element.largest())
    return std::ldexp(std::copysign(element.largest(), x), exponent);
  const int power = magnitude < element.smallest_normal() ? std::ilogb(element.smallest_normal())
                                                          : std::ilogb(magnitude);
  const double spacing = std::ldexp(1.0, power - element.mantissa_bits);
  return std::ldexp(std::nearbyint(scaled / spacing) * spacing, exponent);
}

TEST_SUITE("cpu") {
  TEST_CASE("MX with rule floor is the OCP's definition, exactly") {
    for (const NamedFormat& element : BlockElements()) {
      CAPTURE(std::string(element.name));
      const BlockFormat format = DefaultBlockFormat(element.format, BlockScale::kE8M0);
      const std::vector<float> input = Spread(400, 32, 115, 1);
      const Quantized q = Quantize(format, Rows(400, 32, format), input);
      std::size_t wrong = 0;
      for (std::size_t row = 0; row < 400; ++row) {
        const auto begin = input.begin() + static_cast<std::ptrdiff_t>(32 * row);
        const float largest = AmaxOf({&*begin, 32});
        for (std::size_t i = 32 * row; i < 32 * row + 32; ++i) {
          const double truth =
              ByOcp(element.format, static_cast<double>(input[i]), static_cast<double>(largest));
          wrong += Bits(q.values[i]) != Bits(static_cast<float>(truth));
        }
      }
      CHECK(wrong == 0);
    }
  }

  TEST_CASE("the sign of values changes the signs of results alone") {
    for (const BlockFormat& format : Formats()) {
      if (format.rule == BlockRule::kModelopt) continue;  // its zeros have no sign
      CAPTURE(FormatName(format));
      const std::vector<float> input = Spread(20, 200, 20, 2);
      std::vector<float> negative = input;
      for (float& x : negative) x = -x;
      const Quantized plus = Quantize(format, Rows(20, 200, format), input);
      Quantized minus = Quantize(format, Rows(20, 200, format), negative);
      for (float& x : minus.values) x = -x;
      CHECK(SameValues(plus.values, minus.values));
      CHECK(SameValues(plus.scales, minus.scales));
    }
  }

  TEST_CASE("values times a power of two give results times that") {
    for (const BlockFormat& format : Formats()) {
      if (format.scale == BlockScale::kFp8E4M3 && !format.tensor_scale) continue;  // it has limits
      CAPTURE(FormatName(format));
      const std::vector<float> input = Spread(20, 200, 8, 3);
      std::vector<float> larger = input;
      for (float& x : larger) x *= 0x1p7f;
      const Quantized one = Quantize(format, Rows(20, 200, format), input);
      Quantized other = Quantize(format, Rows(20, 200, format), larger);
      for (float& x : other.values) x *= 0x1p-7f;
      CHECK(SameValues(one.values, other.values));
      CHECK(one.codes == other.codes);
      CHECK(one.counts.lost() == other.counts.lost());
      CHECK(one.counts.saturated == other.counts.saturated);
    }
  }

  TEST_CASE("a ragged last block is one whose other values are zeros") {
    for (const BlockFormat& format : Formats()) {
      CAPTURE(FormatName(format));
      const std::int64_t rows = 19, columns = 139, wide = 256, high = 32;
      const std::vector<float> input = Spread(rows, columns, 10, 4);
      std::vector<float> padded(static_cast<std::size_t>(high * wide), 0.0f);
      for (std::int64_t r = 0; r < rows; ++r)
        std::copy_n(input.begin() + r * columns, columns, padded.begin() + r * wide);
      const Quantized ragged = Quantize(format, Rows(rows, columns, format), input);
      const Quantized whole = Quantize(format, Rows(high, wide, format), padded);
      std::vector<float> cut;
      for (std::int64_t r = 0; r < rows; ++r) {
        cut.insert(cut.end(), whole.values.begin() + r * wide,
                   whole.values.begin() + r * wide + columns);
      }
      CHECK(SameValues(ragged.values, cut));
      CHECK(ragged.counts.lost() == whole.counts.lost());
    }
  }

  TEST_CASE("blocks along an axis are those of the transposed tensor along the other") {
    for (const BlockFormat& format : Formats()) {
      CAPTURE(FormatName(format));
      const std::int64_t rows = 50, columns = 37;
      const std::vector<float> input = Spread(rows, columns, 10, 5);
      std::vector<float> turned(input.size());
      const auto turn = [&](const auto& from, auto& to) {
        for (std::int64_t r = 0; r < rows; ++r) {
          for (std::int64_t c = 0; c < columns; ++c)
            to[static_cast<std::size_t>(c * rows + r)] =
                from[static_cast<std::size_t>(r * columns + c)];
        }
      };
      turn(input, turned);
      const Quantized down =
          Quantize(format, BlockLayoutOf({rows, columns}, 0, format.square), input);
      const Quantized along =
          Quantize(format, BlockLayoutOf({columns, rows}, 1, format.square), turned);
      std::vector<float> values(input.size());
      turn(down.values, values);
      CHECK(SameValues(values, along.values));
    }
  }

  TEST_CASE("a square tile has the same codes in both directions") {
    for (BlockFormat format : Formats()) {
      if (!format.square || format.rule == BlockRule::kFourOverSix) continue;  // the order of sums
      CAPTURE(FormatName(format));
      const std::vector<float> input = Spread(40, 72, 10, 6);
      const Quantized down = Quantize(format, BlockLayoutOf({40, 72}, 0, true), input);
      const Quantized along = Quantize(format, BlockLayoutOf({40, 72}, 1, true), input);
      CHECK(SameValues(down.values, along.values));
      CHECK(down.codes == along.codes);
    }
  }

  TEST_CASE("a scale of each row: every row is quantized as a tensor of its own") {
    for (const BlockFormat& format : RowScaled()) {
      CAPTURE(FormatName(format));
      BlockFormat whole = format;
      whole.row_scaled = false;
      const std::vector<std::int64_t> shape = {6, 40, 5};
      const std::vector<float> input = Spread(60, 20, 40, 8);
      for (const std::size_t axis : {0u, 1u, 2u}) {
        CAPTURE(axis);
        const BlockLayout layout = BlockLayoutOf(shape, axis, false);
        const Quantized all = Quantize(format, layout, input);
        const Quantized under_one = Quantize(whole, layout, input);
        CHECK(all.codes != under_one.codes);
        const std::vector<float> amaxes = RowAmaxesOf(layout, input.data());
        CHECK(std::ssize(amaxes) == layout.matrices * layout.rows);
        BlockCounts counts;
        const std::int64_t blocks = layout.blocks_per_row(format);
        for (std::int64_t i = 0; i < std::ssize(amaxes); ++i) {
          const std::int64_t begin =
              i / layout.rows * layout.matrix_stride + i % layout.rows * layout.row_stride;
          std::vector<float> line, values, scales;
          std::vector<std::uint8_t> codes;
          for (std::int64_t k = 0; k < layout.length; ++k) {
            const auto at = static_cast<std::size_t>(begin + k * layout.stride);
            line.push_back(input[at]), values.push_back(all.values[at]);
            codes.push_back(all.codes[at]);
          }
          for (std::int64_t k = 0; k < blocks; ++k)
            scales.push_back(all.scales[static_cast<std::size_t>(i * blocks + k)]);
          const Quantized own = Quantize(whole, Rows(1, layout.length, whole), line);
          CHECK(SameValues(values, own.values));
          CHECK(SameValues(scales, own.scales));
          CHECK(codes == own.codes);
          CHECK(amaxes[static_cast<std::size_t>(i)] == AmaxOf(line));
          counts.Add(own.counts);
        }
        CHECK(all.counts.lost() == counts.lost());
        CHECK(all.counts.lost_scale_floor == counts.lost_scale_floor);
        CHECK(all.counts.at_floor == counts.at_floor);
        CHECK(all.counts.noise == doctest::Approx(counts.noise).epsilon(1e-12));
      }
    }
  }

  TEST_CASE("counts are those of a second look at the values, and add up over blocks") {
    for (const BlockFormat& format : Formats()) {
      CAPTURE(FormatName(format));
      std::vector<float> input = Spread(64, 96, 24, 7);
      for (std::size_t i = 0; i < input.size(); i += 7) input[i] = 0;
      std::fill_n(input.begin() + 96 * 16, 96 * 16, -0.0f);
      const Quantized q = Quantize(format, Rows(64, 96, format), input);
      std::int64_t zeros = 0, lost = 0;
      double signal = 0, noise = 0;
      for (std::size_t i = 0; i < input.size(); ++i) {
        zeros += input[i] == 0;
        lost += input[i] != 0 && q.values[i] == 0;
        const auto x = static_cast<double>(input[i]), y = static_cast<double>(q.values[i]);
        signal += x * x, noise += (x - y) * (x - y);
      }
      const BlockCounts& counts = q.counts;
      CHECK(counts.numel == 64 * 96);
      CHECK(counts.zeros == zeros);
      CHECK(counts.lost() == lost);
      CHECK(counts.blocks == Rows(64, 96, format).blocks(format));
      CHECK(counts.zero_blocks >= 1);
      CHECK(counts.broken_blocks == 0);
      CHECK(counts.signal == doctest::Approx(signal).epsilon(1e-12));
      CHECK(counts.noise == doctest::Approx(noise).epsilon(1e-12));
      CHECK(counts.sqnr_worst_db() <= counts.sqnr_mean_db());
      BlockCounts twice = counts;
      twice.Add(counts);
      CHECK(twice.lost() == 2 * lost);
      CHECK(twice.sqnr_db() == doctest::Approx(counts.sqnr_db()));
      CHECK(twice.log2_std() == doctest::Approx(counts.log2_std()));
    }
  }

  TEST_CASE("counts of values times a power of two are counts with that scale") {
    const std::vector<float> values = Spread(8, 96, 6, 5);
    std::vector<float> scaled = values;
    for (float& x : scaled) x *= 8;
    const BlockFormat format = DefaultBlockFormat(kFp8E4M3, BlockScale::kE8M0);
    const BlockLayout layout = Rows(8, 96, format);
    const BlockCounts counts = Quantize(format, layout, values).counts.Rescaled(8),
                      want = Quantize(format, layout, scaled).counts;
    CHECK(counts.signal == want.signal);
    CHECK(counts.noise == want.noise);
    CHECK(counts.log2_min == want.log2_min);
    CHECK(counts.log2_max == want.log2_max);
    CHECK(counts.log2_mean() == want.log2_mean());
    CHECK(counts.log2_std() == doctest::Approx(want.log2_std()));
    CHECK(counts.lost() == want.lost());
    CHECK(BlockCounts().Rescaled(8).log2_min == 0);
  }

  TEST_CASE("a block that holds infinity has no part in the SQNR, though its values decode") {
    BlockFormat format = DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3);
    format.tensor_scale = false;
    std::vector<float> input(64);
    for (std::size_t i = 0; i < input.size(); ++i) input[i] = 0.1F * static_cast<float>(i % 13);
    input[5] = INFINITY;
    const Quantized q = Quantize(format, Rows(1, 64, format), input);
    double noise = 0;
    for (std::size_t i = 16; i < input.size(); ++i)
      noise += std::pow(static_cast<double>(input[i]) - static_cast<double>(q.values[i]), 2);
    REQUIRE(std::isfinite(q.values[5]));
    CHECK(q.counts.broken_blocks == 0);
    CHECK(q.counts.noise == doctest::Approx(noise).epsilon(1e-12));
    CHECK(q.counts.noisy_blocks == 3);
    CHECK(std::isfinite(q.counts.sqnr_db()));
  }

  TEST_CASE("a NaN is not lost: its block is NaN, or it alone where elements can be NaN") {
    for (const NamedFormat& element : BlockElements())
      for (const bool power_of_two : {false, true}) {
        CAPTURE(std::string(element.name));
        CAPTURE(power_of_two);
        BlockFormat format = DefaultBlockFormat(element.format, BlockScale::kFp32);
        format.power_of_two = power_of_two;
        const Quantized q = Quantize(format, Rows(1, 4, format), {1, NAN, 2, -3});
        CHECK(std::isnan(q.values[1]));
        const bool alone = power_of_two && element.format.has_nan;
        for (const std::size_t i : {0U, 2U, 3U}) CHECK(std::isnan(q.values[i]) != alone);
      }
  }

  TEST_CASE("the spread of scales: none without scales, 0 of equal ones") {
    const BlockFormat format = DefaultBlockFormat(kFp8E4M3, BlockScale::kFp32);
    const Quantized zeros = Quantize(format, Rows(1, 256, format), std::vector<float>(256));
    CHECK(std::isnan(zeros.counts.log2_std()));
    const Quantized equal = Quantize(format, Rows(1, 256, format), std::vector<float>(256, 0.7F));
    CHECK(equal.counts.log2_std() == 0);
  }

  TEST_CASE("a tiny tensor saturates where its factor overflows, not where values are divided") {
    std::vector<float> tiny(64);
    for (std::size_t i = 0; i < tiny.size(); ++i)
      tiny[i] = std::ldexp(1 + static_cast<float>(i % 16) / 16, -131);
    BlockFormat format = DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3);
    for (const BlockRule rule : {BlockRule::kModelopt, BlockRule::kTorchao}) {
      format.rule = rule;
      const Quantized q = Quantize(format, Rows(1, 64, format), tiny);
      std::int64_t clamped = 0;  // codes of the largest magnitude, 6
      for (const std::uint8_t code : q.codes) clamped += (code & 7) == 7;
      CAPTURE(FormatName(format));
      CHECK(q.counts.saturated == (rule == BlockRule::kTorchao ? 64 : 0));
      CHECK((clamped == 64) == (rule == BlockRule::kTorchao));
    }
  }

  TEST_CASE("each cause of a loss is told from the others") {
    struct Row {
      const char* cause;
      BlockFormat format;
      std::vector<float> input;  // one line
      std::int64_t BlockCounts::*counted;
    };
    const BlockFormat mx = DefaultBlockFormat(kFp4E2M1, BlockScale::kE8M0);
    BlockFormat ceil = mx;
    ceil.rule = BlockRule::kCeil;
    const BlockFormat nvfp4 = DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3);
    std::vector<float> far(32, 0.0f), tiny(16, 0.0f);
    far[0] = 1, far[16] = 0x1p-20f, far[17] = 0x1p-21f;  // a block far below the tensor's largest
    tiny[0] = 0x1p-140f, tiny[1] = 0x1p-141f;
    const Row table[] = {
        // 1 becomes 4 to 6 of fp4, whose smallest half is 0.25: lost under every scale.
        {"beside the largest", mx, {1, 0.04f}, &BlockCounts::lost_beside_largest},
        // Exactly scaled 1.1 is 6 and 0.048 is 0.26, which stays; rounded up, the scale is 1/2.
        {"rounding of the scale", ceil, {1.1f, 0.048f}, &BlockCounts::lost_scale_rounding},
        {"floor of the scale", nvfp4, far, &BlockCounts::lost_scale_floor},
        {"the tensor's scale", nvfp4, tiny, &BlockCounts::lost_tensor_scale},
    };
    for (const Row& row : table) {
      CAPTURE(std::string(row.cause));
      const auto n = static_cast<std::int64_t>(row.input.size());
      const Quantized q = Quantize(row.format, Rows(1, n, row.format), row.input);
      CHECK(q.counts.lost() >= 1);
      CHECK(q.counts.*row.counted == q.counts.lost());
    }
  }

  TEST_CASE("what a random draw makes zero is not the scale's fault") {
    const BlockFormat mx = DefaultBlockFormat(kFp4E2M1, BlockScale::kE8M0);
    const BlockGrid grid = BlockGridOf(mx);
    // 6 is the largest element, so that the scale is 1; elements are 0.5 apart. The draw made 0.4
    // and 0.2 zero; 0.4 is not lost by rounding to nearest, and 0.5 never.
    const std::vector<float> values = {6, 0.4f, 0.2f, 0.5f}, decoded = {6, 0, 0, 0.5f};
    BlockCounts counts;
    CountBlock(grid, TensorFactorOf(grid, 6), BlockFactor{}, values, decoded, counts);
    CHECK(counts.lost_beside_largest == 2);
    CHECK(counts.lost() == 2);
    // With a scale of 2 the element of 0.8 is 0.4; exactly scaled it would be 0.8, which no draw
    // loses.
    BlockFactor wide;
    wide.stored = wide.decode = 2, wide.encode = 0.5f;
    counts = {};
    CountBlock(grid, TensorFactorOf(grid, 6), wide, std::vector<float>{6, 0.8f},
               std::vector<float>{6, 0}, counts);
    CHECK(counts.lost_scale_rounding == 1);
    CHECK(counts.lost() == 1);
    // What a scale of zero decodes as zero is no draw's fault.
    BlockFactor none;
    none.stored = none.decode = 0, none.encode = 1, none.at_floor = true;
    const std::vector<float> zeros = {0, 0};
    BlockCounts of_floor;
    CountBlock(grid, TensorFactorOf(grid, 6), none, std::vector<float>{6, 0.4f}, zeros, of_floor);
    CHECK(of_floor.lost_scale_floor == 2);
  }

  TEST_CASE("no values, one value, zeros: nothing is lost and nothing is made up") {
    for (const BlockFormat& format : Formats()) {
      CAPTURE(FormatName(format));
      CHECK(Quantize(format, BlockLayoutOf({0, 5}, 1, format.square), {}).counts.blocks == 0);
      CHECK(Quantize(format, BlockLayoutOf({5, 0}, 0, format.square), {}).counts.blocks == 0);
      const Quantized zeros =
          Quantize(format, BlockLayoutOf({3, 3}, 1, format.square), std::vector<float>(9, 0.0f));
      // torchao and ModelOpt divide by the scale of the tensor, which is zero here.
      const bool divides =
          format.rule == BlockRule::kTorchao || format.rule == BlockRule::kModelopt;
      CHECK(SameValues(zeros.values, std::vector<float>(9, divides ? NAN : 0.0f)));
      CHECK(zeros.counts.zero_blocks == zeros.counts.blocks);
      CHECK(zeros.counts.broken_blocks == (divides ? zeros.counts.blocks : 0));
      CHECK(std::isnan(zeros.counts.sqnr_db()));
      const Quantized one = Quantize(format, BlockLayoutOf({}, 0, format.square), {6.0f});
      CHECK(one.values.at(0) == 6.0f);
      CHECK(one.counts.lost() == 0);
    }
  }
}

}  // namespace
}  // namespace ada
