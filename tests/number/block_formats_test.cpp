// Names of block-scaled formats, what belongs together in one, and layouts of blocks.
#include <doctest/doctest.h>

#include <cmath>

#include "error.h"
#include "number/blocks/block_format.h"
#include "number/blocks/block_quantizer.h"

namespace ada {
namespace {

BlockFormat Nvfp4() { return DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3); }

TEST_SUITE("cpu") {
  TEST_CASE("names of block-scaled formats are what the OCP and NVIDIA call them") {
    std::string names;
    for (const NamedBlockFormat& named : NamedBlockFormats()) {
      names += std::string(named.name) + " ";
      CHECK(FormatName(named.format) == named.name);
      CHECK(RefuseBlockFormat(named.format) == "");
    }
    CHECK(names ==
          "mxfp8_e4m3 mxfp8_e5m2 mxfp6_e2m3 mxfp6_e3m2 mxfp4 mxint8 nvfp4 fp8_block128 "
          "hifloat4 ");
  }

  TEST_CASE("a format without a name is written as a map of what is special in it") {
    BlockFormat format = Nvfp4();
    format.rule = BlockRule::kFourOverSix, format.error = BlockError::kMse, format.top = 256;
    format.square = true;
    CHECK(FormatName(format) ==
          "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3, rule: four_over_six, error: mse, "
          "top: 256}");
    BlockFormat powers = DefaultBlockFormat(kFp8E4M3, BlockScale::kFp32);
    powers.power_of_two = true;
    CHECK(FormatName(powers) == "{element: fp8_e4m3, block: 128, scale: fp32, power_of_two: true}");
    BlockFormat rows = Nvfp4();
    rows.row_scaled = true;
    CHECK(FormatName(rows) == "{element: fp4_e2m1, block: 16, scale: fp8_e4m3, tensor_scale: row}");
    CHECK(FormatName(AnyFormat(kFp16)) == "fp16");
    CHECK(FormatName(AnyFormat(Nvfp4())) == "nvfp4");
  }

  TEST_CASE("what does not belong together is refused") {
    const auto refused = [](BlockFormat format, auto change) {
      change(format);
      return RefuseBlockFormat(format);
    };
    const BlockFormat mx = DefaultBlockFormat(kFp8E4M3, BlockScale::kE8M0);
    CHECK(refused(mx, [](BlockFormat& f) { f.element = kFp16; }) ==
          "elements are fp8_e4m3, fp8_e5m2, fp6_e2m3, fp6_e3m2, fp4_e2m1, fp4_e1m2, int8, int4 or "
          "mxint8");
    CHECK(refused(mx, [](BlockFormat& f) { f.rule = BlockRule::kTe; }) ==
          "scale e8m0 has no rule te; it has floor, ceil, even, rceil");
    CHECK(refused(mx, [](BlockFormat& f) { f.block = 1025; }) ==
          "block is 1025; 1 to 1024 are possible");
    CHECK(refused(Nvfp4(), [](BlockFormat& f) { f.rule = BlockRule::kRceil; }) ==
          "scale fp8_e4m3 has no rule rceil; it has te, four_over_six, torchao, modelopt");
    CHECK(refused(Nvfp4(), [](BlockFormat& f) {
            f.rule = BlockRule::kFourOverSix, f.tensor_scale = false;
          }) == "rule four_over_six needs tensor_scale: true");
    CHECK(refused(Nvfp4(), [](BlockFormat& f) {
            f.rule = BlockRule::kModelopt, f.tensor_scale = false;
          }) == "rule modelopt needs tensor_scale: true");
    CHECK(refused(mx, [](BlockFormat& f) { f.row_scaled = true; }) ==
          "only scale fp8_e4m3 has a tensor_scale");
    CHECK(refused(Nvfp4(), [](BlockFormat& f) { f.row_scaled = f.square = true; }) ==
          "tensor_scale: row is for blocks along an axis; a tile lies in several rows");
    CHECK(refused(Nvfp4(), [](BlockFormat& f) {
            f.row_scaled = true, f.rule = BlockRule::kTorchao;
          }) == "tensor_scale: row is for rules te and four_over_six");
    CHECK(refused(Nvfp4(), [](BlockFormat& f) { f.row_scaled = true; }) == "");
  }

  TEST_CASE("codes of elements are those of the formats' tables") {
    for (const NamedFormat& named : BlockElements()) {
      const NumberFormat& f = named.format;
      const unsigned codes = 1u << (f.exponent_bits + f.mantissa_bits);
      const float lowest = static_cast<float>(f.smallest_subnormal());
      float value = 0;
      for (unsigned code = 0; value <= static_cast<float>(f.largest()); ++code) {
        CAPTURE(std::string(named.name));
        CAPTURE(code);
        CHECK(ElementCodeOf(f, value) == code);
        CHECK(ElementCodeOf(f, -value) == (code | codes));
        const unsigned field = code >> f.mantissa_bits;
        value += lowest * std::ldexp(1.0f, field <= 1 ? 0 : static_cast<int>(field) - 1);
      }
    }
    CHECK(ElementCodeOf(kFp8E4M3, NAN) == 0x7f);
    CHECK(ElementCodeOf(kFp8E5M2, NAN) == 0x7f);
  }

  TEST_CASE("blocks of a tensor run along the axis that is named") {
    struct Row {
      std::vector<std::int64_t> shape;
      std::size_t axis;
      bool square;
      std::int64_t matrices, rows, length, matrix_stride, row_stride, stride;
    };
    const Row table[] = {
        {{}, 0, false, 1, 1, 1, 0, 0, 1},           {{5}, 0, false, 1, 1, 5, 1, 5, 1},
        {{3, 5}, 1, false, 1, 3, 5, 1, 5, 1},       {{3, 5}, 0, false, 5, 1, 3, 1, 15, 5},
        {{3, 5}, 0, true, 1, 5, 3, 1, 1, 5},        {{8, 6, 3, 3}, 1, true, 9, 8, 6, 1, 54, 9},
        {{8, 6, 3, 3}, 0, true, 9, 6, 8, 1, 9, 54}, {{2, 4, 6}, 2, true, 1, 8, 6, 1, 6, 1},
        {{0, 4}, 0, true, 1, 4, 0, 1, 1, 4},
    };
    for (const Row& row : table) {
      const BlockLayout layout = BlockLayoutOf(row.shape, row.axis, row.square);
      CAPTURE(row.shape.size());
      CAPTURE(row.axis);
      CHECK(layout.matrices == row.matrices);
      CHECK(layout.rows == row.rows);
      CHECK(layout.length == row.length);
      CHECK(layout.stride == row.stride);
      if (layout.rows > 1) CHECK(layout.row_stride == row.row_stride);
      if (layout.matrices > 1) CHECK(layout.matrix_stride == row.matrix_stride);
    }
  }
}

}  // namespace
}  // namespace ada
