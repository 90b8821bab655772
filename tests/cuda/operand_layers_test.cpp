// Operands of products in every kind of layer: where blocks lie, transforms, products of which one
// operand rounds and the other does not, and evaluation.
#include <doctest/doctest.h>

#include "cuda/operands_lab.h"

namespace ada::backend::test {
namespace {

using enum Operand;

std::vector<MatmulCase> Layers() {
  const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, none = {0, 0};
  std::vector<MatmulCase> all = {
      {"3x3", {3, 6, 5, 20}, 24, three, one, one, one, 1, true},
      {"strided", {3, 7, 6, 24}, 8, three, two, one, one, 1, false},
      {"dilated", {2, 7, 7, 8}, 8, three, one, two, two, 1, false},
      {"1x1", {3, 4, 4, 36}, 20, one, one, none, one, 1, true},
      {"1x1 strided", {3, 4, 4, 36}, 20, one, two, none, one, 1, true},
      {"groups", {3, 5, 5, 24}, 48, three, one, one, one, 3, true},
      {"groups of 1x1", {3, 5, 5, 24}, 48, one, one, none, one, 2, false},
      {"depthwise", {3, 6, 6, 20}, 20, three, two, one, one, 20, true},
      {"two a group", {3, 6, 6, 20}, 20, three, one, one, one, 10, false},
      {"one channel", {4, 6, 6, 1}, 5, three, one, one, one, 1, true},
      {"one pixel", {20, 1, 1, 1}, 3, one, one, none, one, 1, true},
      LinearCase("linear", {21, 1, 1, 70}, 33, true),
      LinearCase("linear of images", {5, 3, 2, 20}, 33, false),
      LinearCase("linear of one channel", {5, 4, 3, 1}, 7, true),
      LinearCase("linear of one feature", {5, 1, 1, 1}, 1, true)};
  MatmulCase sequence = {"linear of a sequence", {3, 9, 1, 40}, 21, one, one, none, one, 1, true};
  sequence.linear = true;
  all.push_back(sequence);
  const std::size_t convolutions = 8;
  for (std::size_t i = 0; i < convolutions; ++i) {
    MatmulCase c = Transposed(all[i]);
    c.name = "transposed " + c.name;
    all.push_back(c);
  }
  return all;
}

BlockFormat Named(const std::string& name) {
  for (const NamedBlockFormat& named : NamedBlockFormats())
    if (named.name == name) return named.format;
  FAIL("no format " << name);
  return {};
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("operands op: each kernel in one layer") {
    BlockFormat four = Named("nvfp4");
    four.rule = BlockRule::kFourOverSix;
    OperandSettings settings = AllAlike(Layers()[0], InBlocks(four));
    settings.layer.x.n = 17;
    BlockFormat rows = four;
    rows.row_scaled = true;
    settings.operands[IndexOf(kDxW)] = InBlocks(rows);
    OperandRounding& plain = settings.operands[IndexOf(kDwX)] = InFormat(kFp8E4M3);
    plain.hadamard.size = settings.operands[IndexOf(kDwDy)].hadamard.size = 16;
    settings.operands[IndexOf(kForwardW)] = InFormat(kFp8E4M3);
    settings.per_tensor_scale = 1, settings.current = true;
    CheckOperands(settings);
  }

  TEST_CASE("operands on kernels: every kind of layer") {
    BlockFormat square = Named("nvfp4"), short_blocks = Named("mxfp8_e4m3"), four = Named("nvfp4");
    square.square = true;
    short_blocks.block = 5;
    four.rule = BlockRule::kFourOverSix, four.square = true, four.block = 6;
    for (const MatmulCase& c : Layers())
      for (const BlockFormat& format :
           {Named("mxfp8_e5m2"), Named("nvfp4"), square, short_blocks, four}) {
        CAPTURE(FormatName(format));
        CheckOperands(AllAlike(c, InBlocks(format)));
      }
  }

  TEST_CASE("operands on kernels: six operands that differ, plain, in blocks and as stored") {
    for (const MatmulCase& c : Layers())
      for (int turn = 0; turn < 3; ++turn) {
        CAPTURE(turn);
        OperandSettings settings;
        settings.layer = c;
        settings.stored = turn == 1 ? kFp16 : kBf16;
        settings.operands[IndexOf(kForwardX)] = InBlocks(Named("mxfp8_e4m3"));
        settings.operands[IndexOf(kForwardW)] = InFormat(kFp8E4M3);
        settings.operands[IndexOf(kDxW)] = InBlocks(Named("mxfp4"));
        settings.operands[IndexOf(kDwX)] = InBlocks(Named("fp8_block128"));
        settings.operands[IndexOf(kDwDy)] = InFormat(kFp8E5M2);
        std::rotate(settings.operands.begin(), settings.operands.begin() + 2 * turn,
                    settings.operands.end());
        CheckOperands(settings);
        settings.per_tensor_scale = 0.75f;
        CheckOperands(settings);
      }
  }

  TEST_CASE("operands on kernels: a transform of 16 rows, and what is left over of a batch") {
    for (MatmulCase c : Layers()) {
      // The one value of a dw may be what is left of terms that cancel.
      if (c.transposed || c.w().numel() == 1) continue;
      c.x.n = 16 + c.x.n % 7;
      for (const NumberFormat& stored : {kBf16, kFp16, kFp32})
        for (const bool random : {false, true}) {
          OperandSettings settings;
          settings.layer = c, settings.stored = stored;
          for (const Operand operand : {kDwX, kDwDy}) {
            OperandRounding rounding = InBlocks(Named(random ? "mxfp4" : "nvfp4"));
            rounding.hadamard.size = 16, rounding.hadamard.random = random;
            rounding.style.stochastic = random;
            settings.operands[IndexOf(operand)] = rounding;
          }
          CheckOperands(settings);
          for (const Operand operand : {kDwX, kDwDy}) {
            OperandRounding rounding = InFormat(kFp8E4M3);
            rounding.hadamard.size = 16, rounding.hadamard.random = random;
            settings.operands[IndexOf(operand)] = rounding;
          }
          settings.per_tensor_scale = 2, settings.current = true;
          CheckOperands(settings);
        }
    }
  }

  TEST_CASE("operands on kernels: evaluation rounds to nearest and counts nothing") {
    for (const MatmulCase& c : Layers()) {
      OperandRounding rounding = InBlocks(Named("nvfp4"));
      rounding.style.stochastic = true;
      OperandSettings settings = AllAlike(c, rounding);
      settings.backward = false;
      OnBoth([&](Lab& lab, Findings& findings) {
        const OperandLab layer(lab, settings);
        Pass pass;
        pass.rows = static_cast<int>(c.x.n), pass.training = false;
        for (int i = 0; i < 3; ++i) layer.Step(pass, findings);
      });
    }
  }
}

}  // namespace
}  // namespace ada::backend::test
