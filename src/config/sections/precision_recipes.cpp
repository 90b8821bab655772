// Recipes of other programs and papers: what their matmuls round, expressed as
// `precision.operands`. A recipe is only a set of `precision.operands`: a user
// could write out the same keys. The section's check fills it in after the keys
// were read.
#include "config/recipes.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

using enum Operand;
using Scaling = TensorScalingConfig::Kind;

OperandConfig Rounded(const AnyFormat& format, RoundingKind rounding = RoundingKind::kNearest) {
  return {format, rounding};
}
// The order of by_operand is that of Operand: forward.x, forward.w, dx.dy, dx.w, dw.x, dw.dy.
OperandsConfig OfTensors(const OperandConfig& x, const OperandConfig& w, const OperandConfig& dy) {
  OperandsConfig operands;
  operands.by_operand = {x, w, dy, w, x, dy};
  return operands;
}
BlockFormat Square(BlockFormat format) {
  format.square = true;
  return format;
}

// Transformer Engine at d0067d0, transformer_engine/common/recipe/__init__.py: HYBRID, the head
// and all that is no linear layer apart.
// HYBRID means e4m3 for x and w, and e5m2, which has more range, for gradients.
OperandsConfig TeFp8(Scaling kind) {
  OperandsConfig operands = OfTensors(Rounded(kFp8E4M3), Rounded(kFp8E4M3), Rounded(kFp8E5M2));
  operands.tensor_scaling.emplace();
  operands.tensor_scaling->kind = kind;
  operands.tensor_scaling->reference = kind == Scaling::kDelayed;
  return operands;
}
// The same, MXFP8BlockScaling; torchao at 36027d8, MXFP8TrainingOpConfig: e4m3 both ways, scales
// rounded up.
OperandsConfig Mxfp8() {
  BlockFormat format = DefaultBlockFormat(kFp8E4M3, BlockScale::kE8M0);
  format.rule = BlockRule::kRceil;
  return OfTensors(Rounded(format), Rounded(format), Rounded(format));
}
// The same, NVFP4BlockScaling: weights in squares, dw of transformed operands, dy stochastically.
OperandsConfig Nvfp4() {
  const BlockFormat format = DefaultBlockFormat(kFp4E2M1, BlockScale::kFp8E4M3);
  OperandsConfig operands = OfTensors(Rounded(format), Rounded(Square(format)),
                                      Rounded(format, RoundingKind::kStochastic));
  operands.hadamard.emplace();
  return operands;
}
// Pretraining Large Language Models with NVFP4 (arXiv 2509.25149): the same, and some layers at
// both ends of the network as they are stored.
OperandsConfig Nvfp4Pretraining() {
  OperandsConfig operands = Nvfp4();
  operands.spared = SparedConfig{1, 1};
  return operands;
}
// DeepSeek-V3 (arXiv 2412.19437), section 3.3.
OperandsConfig DeepSeekV3() {
  const BlockFormat format = DefaultBlockFormat(kFp8E4M3, BlockScale::kFp32);
  return OfTensors(Rounded(format), Rounded(Square(format)), Rounded(format));
}
// Training LLMs with MXFP4 (arXiv 2502.20586): forward as stored; the products of the backward pass
// stochastically, dw's after a transform with random signs (here of 16 values, of dw alone, and
// values are not multiplied by 3/4 first).
OperandsConfig Mxfp4Hadamard() {
  const OperandConfig format =
      Rounded(DefaultBlockFormat(kFp4E2M1, BlockScale::kE8M0), RoundingKind::kStochastic);
  OperandsConfig operands = OfTensors(format, format, format);
  operands.by_operand[IndexOf(kForwardX)] = operands.by_operand[IndexOf(kForwardW)] =
      OperandConfig{};
  operands.hadamard.emplace().signs = HadamardConfig::Signs::kRandom;
  return operands;
}

OperandsConfig OperandsOf(PrecisionRecipe recipe) {
  switch (recipe) {
    case PrecisionRecipe::kNone:
      return {};
    case PrecisionRecipe::kTeFp8Current:
      return TeFp8(Scaling::kCurrent);
    case PrecisionRecipe::kTeFp8Delayed:
      return TeFp8(Scaling::kDelayed);
    case PrecisionRecipe::kTeMxfp8:
    case PrecisionRecipe::kTorchaoMxfp8:
      return Mxfp8();
    case PrecisionRecipe::kTeNvfp4:
      return Nvfp4();
    case PrecisionRecipe::kNvfp4Pretraining:
      return Nvfp4Pretraining();
    case PrecisionRecipe::kDeepSeekV3:
      return DeepSeekV3();
    case PrecisionRecipe::kMxfp4Hadamard:
      return Mxfp4Hadamard();
  }
  return {};
}

// Where a recipe comes from, in a few words; configs/README.md has the revisions.
const char* SourceOf(PrecisionRecipe recipe) {
  switch (recipe) {
    case PrecisionRecipe::kNone:
      return "";
    case PrecisionRecipe::kTeFp8Current:
      return "Transformer Engine, Float8CurrentScaling";
    case PrecisionRecipe::kTeFp8Delayed:
      return "Transformer Engine, DelayedScaling";
    case PrecisionRecipe::kTeMxfp8:
      return "Transformer Engine, MXFP8BlockScaling";
    case PrecisionRecipe::kTorchaoMxfp8:
      return "torchao, MXFP8TrainingOpConfig";
    case PrecisionRecipe::kTeNvfp4:
      return "Transformer Engine, NVFP4BlockScaling";
    case PrecisionRecipe::kNvfp4Pretraining:
      return "arXiv 2509.25149";
    case PrecisionRecipe::kDeepSeekV3:
      return "arXiv 2412.19437, section 3.3";
    case PrecisionRecipe::kMxfp4Hadamard:
      return "after arXiv 2502.20586";
  }
  return "";
}

// "nvfp4 stochastically", or that the operand stays as it is stored.
std::string OperandText(const std::optional<OperandConfig>& operand) {
  if (!operand || !operand->format) return "as stored";
  return FormatName(*operand->format) +
         (operand->rounding == RoundingKind::kStochastic ? " stochastically" : "");
}

std::string RecipeText(PrecisionRecipe recipe) {
  const OperandsConfig operands = OperandsOf(recipe);
  const auto of = [&](Operand operand) {
    return OperandText(operands.by_operand[IndexOf(operand)]);
  };
  std::string text = "x " + of(kForwardX) + ", w " + of(kForwardW) + ", dy " + of(kDxDy);
  if (of(kDwX) != of(kForwardX)) text += ", x of dw " + of(kDwX);
  if (operands.tensor_scaling)
    text += operands.tensor_scaling->kind == Scaling::kDelayed ? "; a scale from earlier steps"
                                                               : "; a scale of each tensor";
  if (operands.hadamard) text += "; dw after a Hadamard transform";
  if (operands.spared) text += "; the first and last layer spared";
  return text + "; " + SourceOf(recipe);
}

}  // namespace

std::vector<RecipeLine> Recipes() {
  std::vector<RecipeLine> lines;
  for (const auto& [name, recipe] : RecipeNames())
    if (recipe != PrecisionRecipe::kNone) lines.push_back({name, RecipeText(recipe)});
  return lines;
}

const EnumNames<PrecisionRecipe>& RecipeNames() {
  static const EnumNames<PrecisionRecipe> names = {
      {"none", PrecisionRecipe::kNone},
      {"te_fp8_current", PrecisionRecipe::kTeFp8Current},
      {"te_fp8_delayed", PrecisionRecipe::kTeFp8Delayed},
      {"te_mxfp8", PrecisionRecipe::kTeMxfp8},
      {"torchao_mxfp8", PrecisionRecipe::kTorchaoMxfp8},
      {"te_nvfp4", PrecisionRecipe::kTeNvfp4},
      {"nvfp4_pretraining", PrecisionRecipe::kNvfp4Pretraining},
      {"deepseek_v3", PrecisionRecipe::kDeepSeekV3},
      {"mxfp4_hadamard", PrecisionRecipe::kMxfp4Hadamard},
  };
  return names;
}

void FillFromRecipe(PrecisionRecipe recipe, OperandsConfig& to) {
  const OperandsConfig from = OperandsOf(recipe);
  for (std::size_t i = 0; i < kOperands; ++i)
    if (!to.by_operand[i]) to.by_operand[i] = from.by_operand[i];
  if (!to.tensor_scaling) to.tensor_scaling = from.tensor_scaling;
  if (!to.hadamard) to.hadamard = from.hadamard;
  if (!to.spared) to.spared = from.spared;
}

}  // namespace ada::config
