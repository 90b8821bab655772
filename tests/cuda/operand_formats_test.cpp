// Operands of products in every format and by every rule: the CUDA backend's kernels beside the
// CPU's. Counts and figures of blocks are the same bits, products are as near as two orders of
// sums.
#include <doctest/doctest.h>

#include "cuda/operands_lab.h"
#include "error.h"

namespace ada::backend::test {
namespace {

BlockFormat Of(const NumberFormat& element, BlockScale scale, BlockRule rule) {
  BlockFormat format = DefaultBlockFormat(element, scale);
  format.rule = rule;
  return format;
}

// Every named format, and every rule that a scale knows, in lines that end in a short block.
std::vector<BlockFormat> EveryRule() {
  std::vector<BlockFormat> all;
  for (const NamedBlockFormat& named : NamedBlockFormats())
    if (named.format.rule != BlockRule::kHiFloat4) all.push_back(named.format);  // refused
  for (const BlockRule rule : {BlockRule::kCeil, BlockRule::kEven, BlockRule::kRceil})
    for (const NumberFormat& element : {kFp8E4M3, kFp6E3M2, kFp4E2M1})
      all.push_back(Of(element, BlockScale::kE8M0, rule));
  for (const BlockRule rule : {BlockRule::kFourOverSix, BlockRule::kTorchao, BlockRule::kModelopt})
    all.push_back(Of(kFp4E2M1, BlockScale::kFp8E4M3, rule));
  all.push_back(Of(kFp8E5M2, BlockScale::kFp8E4M3, BlockRule::kTorchao));
  BlockFormat squares = Of(kFp4E2M1, BlockScale::kFp8E4M3, BlockRule::kFourOverSix);
  squares.error = BlockError::kMse, squares.top = 256;
  all.push_back(squares);
  BlockFormat one_level = DefaultBlockFormat(kFp8E4M3, BlockScale::kFp8E4M3);
  one_level.tensor_scale = false;
  all.push_back(one_level);
  BlockFormat powers = DefaultBlockFormat(kFp8E5M2, BlockScale::kFp32);
  powers.power_of_two = true, powers.block = 24;
  all.push_back(powers);
  for (const BlockRule rule : {BlockRule::kTe, BlockRule::kFourOverSix}) {
    BlockFormat rows = Of(kFp4E2M1, BlockScale::kFp8E4M3, rule);
    rows.row_scaled = true;
    all.push_back(rows);
  }
  for (const BlockFormat& format : all) REQUIRE(RefuseBlockFormat(format).empty());
  return all;
}

BlockFormat Square(BlockFormat format, int block) {
  format.square = true, format.block = block;
  return format;
}
BlockFormat Sized(BlockFormat format, int block) {
  format.block = block;
  return format;
}

MatmulCase Conv() { return {"3x3", {3, 5, 4, 40}, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true}; }
// A library multiplies the zeros of padding as well, also at the edges of dx: inf makes them NaN.
MatmulCase Pointwise() {
  return {"1x1", {3, 5, 4, 40}, 24, {1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, true};
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("operands on kernels: every block format and rule, bf16, fp16 and fp32 stored") {
    for (const BlockFormat& format : EveryRule()) {
      CAPTURE(FormatName(format));
      for (const NumberFormat& stored : {kBf16, kFp16, kFp32}) {
        OperandSettings settings = AllAlike(Conv(), InBlocks(format));
        settings.stored = stored;
        CheckOperands(settings);
      }
    }
  }

  TEST_CASE("operands on kernels: square blocks, blocks of one value and larger than a line") {
    for (const BlockFormat& format : EveryRule())
      for (const BlockFormat& shape :
           {Square(format, 16), Square(format, 7), Sized(format, 1), Sized(format, 1000)}) {
        if (shape.square && shape.row_scaled) continue;  // a tile lies in several rows
        CAPTURE(FormatName(shape));
        CheckOperands(AllAlike(Conv(), InBlocks(shape)));
      }
  }

  TEST_CASE("operands on kernels: plain formats under each way to have a scale") {
    for (const NumberFormat& format : {kFp8E4M3, kFp8E5M2, kFp4E2M1, kFp16, kBf16, kCb16})
      for (const NumberFormat& stored : {kBf16, kFp16, kFp32})
        for (const bool saturates : {true, false}) {
          CAPTURE(FormatName(format));
          NumberFormat rounded = format;
          rounded.saturate = saturates;
          OperandSettings settings = AllAlike(saturates ? Conv() : Pointwise(), InFormat(rounded));
          settings.stored = stored;
          CheckOperands(settings);
          settings.per_tensor_scale = 13;
          CheckOperands(settings);
          settings.current = true;
          CheckOperands(settings);
        }
  }

  TEST_CASE("operands on kernels: stochastic rounding takes the CPU's random words") {
    for (const BlockFormat& format : EveryRule()) {
      CAPTURE(FormatName(format));
      OperandRounding rounding = InBlocks(format);
      rounding.style.stochastic = true;
      CheckOperands(AllAlike(Conv(), rounding));
      CheckOperands(AllAlike(LinearCase("linear", {6, 3, 2, 20}, 10, true), rounding));
    }
    OperandRounding rounding = InFormat(kFp8E4M3);
    rounding.style.stochastic = true;
    CheckOperands(AllAlike(Conv(), rounding));
  }

#ifndef ADA_CUDA_DEVICE
  TEST_CASE("operands on kernels: fp8 operands as codes, with and without scales") {
    for (const float scale : {0.0f, 0.75f}) {
      CAPTURE(scale);
      OperandSettings settings = AllAlike(Conv(), InFormat(kFp8E4M3));
      settings.operands[IndexOf(Operand::kDxDy)].format = kFp8E5M2;
      settings.operands[IndexOf(Operand::kDwDy)].format = kFp8E5M2;
      settings.per_tensor_scale = scale;
      const auto run = [&](std::unique_ptr<Backend> backend) {
        Lab lab(std::move(backend));
        Findings findings;
        OperandLab(lab, settings).Steps(findings);
        for (const std::string& diagnostic : lab->Diagnostics()) {
          CAPTURE(diagnostic);
          CHECK(diagnostic.find("emulated") == std::string::npos);
          CHECK(diagnostic.find("no plan") == std::string::npos);
        }
        return findings;
      };
      DeviceOptions hardware;
      hardware.fp8_hardware = true;
      CheckSame(run(cpu::MakeCpuBackend(1)), run(MakeHostExecutedBackend(hardware)));
    }
  }
#endif

  TEST_CASE("operands on kernels: inf, NaN and tensors of zeros") {
    for (const BlockFormat& format : EveryRule()) {
      CAPTURE(FormatName(format));
      for (const float bad : {INFINITY, NAN, 0.0f}) {
        CAPTURE(bad);
        OperandSettings settings = AllAlike(Conv(), InBlocks(format));
        settings.layer.padding = {0, 0};
        OnBoth([&](Lab& lab, Findings& findings) {
          const OperandLab layer(lab, settings);
          Values dy = lab.Get(layer.spec.dy.tensor), x = lab.Get(layer.spec.x);
          if (bad == 0) {
            std::fill(x.begin(), x.end(), 0.0f);
            std::fill(dy.begin() + 40, dy.end(), 0.0f);
          } else {
            dy[33] = bad;
          }
          lab.Set(layer.spec.x, x);
          lab.Set(layer.spec.dy.tensor, dy);
          layer.Steps(findings);
        });
      }
    }
  }

  TEST_CASE("operands on kernels: hifloat4 is refused by name") {
    for (const NamedBlockFormat& named : NamedBlockFormats())
      if (named.format.rule == BlockRule::kHiFloat4)
        CHECK_THROWS_WITH_AS(CheckOperands(AllAlike(Conv(), InBlocks(named.format))),
                             doctest::Contains("the CUDA backend has no hifloat4"), ConfigError);
  }
}

}  // namespace
}  // namespace ada::backend::test
