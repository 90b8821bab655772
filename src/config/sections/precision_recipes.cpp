// Recipes of other programs and papers: what their matmuls round, expressed as
// `precision.operands`. A user could write out the same keys. The section's check fills them in
// after the keys were read. A new recipe is a row of kRecipes.
#include <algorithm>

#include "config/recipes.h"
#include "config/sections/sections.h"
#include "number/number_format.h"

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
// torchao at 36027d8, nvfp4_training, has the same rules.
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

// torchao 0.18.0, Float8LinearConfig.from_recipe_name: tensorwise has e5m2 for gradients.
TensorScalingConfig TorchaoScaling(Scaling kind, bool power_of_two) {
  TensorScalingConfig scaling;
  scaling.kind = kind;
  scaling.system = scaling::ScaleSystem::kTorchao;
  scaling.power_of_two = power_of_two;
  return scaling;
}
OperandsConfig TorchaoFp8Tensorwise() {
  OperandsConfig operands = OfTensors(Rounded(kFp8E4M3), Rounded(kFp8E4M3), Rounded(kFp8E5M2));
  operands.tensor_scaling = TorchaoScaling(Scaling::kCurrent, /*power_of_two=*/false);
  return operands;
}
// The same, rowwise: e4m3 alone, scales that are powers of two.
OperandsConfig TorchaoFp8Rowwise() {
  OperandsConfig operands = OfTensors(Rounded(kFp8E4M3), Rounded(kFp8E4M3), Rounded(kFp8E4M3));
  operands.tensor_scaling = TorchaoScaling(Scaling::kRow, /*power_of_two=*/true);
  return operands;
}
// The same, rowwise_with_gw_hp: w has one scale in dx, and dw takes x and dy as they are.
OperandsConfig TorchaoFp8RowwiseGwHp() {
  OperandsConfig operands = TorchaoFp8Rowwise();
  operands.by_operand[IndexOf(kDxW)]->tensor_scaling = Scaling::kCurrent;
  operands.by_operand[IndexOf(kDwX)] = operands.by_operand[IndexOf(kDwDy)] = OperandConfig{};
  return operands;
}
// torchao 0.18.0, int8_mixed_precision_training.
OperandsConfig TorchaoInt8() {
  OperandsConfig operands = OfTensors(Rounded(kInt8), Rounded(kInt8), Rounded(kInt8));
  operands.tensor_scaling = TorchaoScaling(Scaling::kRow, /*power_of_two=*/false);
  return operands;
}
// KellerJordan/modded-nanogpt, the FP8 head as it first had it (January 2025): values are divided
// by 0.5, 2^-9 and 2^-19, and nothing saturates. It is for the layer before the loss.
OperandsConfig ModdedNanogptHead() {
  const auto rounded = [](const NumberFormat& format) {
    OperandConfig operand = Rounded(format);
    operand.overflow = OverflowKind::kFormat;
    return operand;
  };
  OperandsConfig operands = OfTensors(rounded(kFp8E4M3), rounded(kFp8E4M3), rounded(kFp8E5M2));
  operands.tensor_scaling.emplace();
  operands.tensor_scaling->kind = Scaling::kStatic;
  operands.tensor_scaling->values = {2, 512, 524288};
  return operands;
}

struct Recipe {
  PrecisionRecipe recipe;
  const char* name;
  const char* source;  // in a few words; configs/formats.md has the revisions
  OperandsConfig (*operands)();
};

constexpr Recipe kRecipes[] = {
    {PrecisionRecipe::kTeFp8Current, "te_fp8_current", "Transformer Engine, Float8CurrentScaling",
     [] { return TeFp8(Scaling::kCurrent); }},
    {PrecisionRecipe::kTeFp8Delayed, "te_fp8_delayed", "Transformer Engine, DelayedScaling",
     [] { return TeFp8(Scaling::kDelayed); }},
    {PrecisionRecipe::kTeMxfp8, "te_mxfp8", "Transformer Engine, MXFP8BlockScaling", Mxfp8},
    {PrecisionRecipe::kTorchaoMxfp8, "torchao_mxfp8", "torchao, MXFP8TrainingOpConfig", Mxfp8},
    {PrecisionRecipe::kTeNvfp4, "te_nvfp4", "Transformer Engine, NVFP4BlockScaling", Nvfp4},
    {PrecisionRecipe::kNvfp4Pretraining, "nvfp4_pretraining", "arXiv 2509.25149", Nvfp4Pretraining},
    {PrecisionRecipe::kDeepSeekV3, "deepseek_v3", "arXiv 2412.19437, section 3.3", DeepSeekV3},
    {PrecisionRecipe::kMxfp4Hadamard, "mxfp4_hadamard", "after arXiv 2502.20586", Mxfp4Hadamard},
    {PrecisionRecipe::kTorchaoFp8Tensorwise, "torchao_fp8_tensorwise",
     "torchao 0.18.0, Float8LinearConfig tensorwise", TorchaoFp8Tensorwise},
    {PrecisionRecipe::kTorchaoFp8Rowwise, "torchao_fp8_rowwise",
     "torchao 0.18.0, Float8LinearConfig rowwise", TorchaoFp8Rowwise},
    {PrecisionRecipe::kTorchaoFp8RowwiseGwHp, "torchao_fp8_rowwise_gw_hp",
     "torchao 0.18.0, Float8LinearConfig rowwise_with_gw_hp", TorchaoFp8RowwiseGwHp},
    {PrecisionRecipe::kTorchaoInt8, "torchao_int8", "torchao 0.18.0, int8_mixed_precision_training",
     TorchaoInt8},
    {PrecisionRecipe::kTorchaoNvfp4, "torchao_nvfp4", "torchao 36027d8, nvfp4_training", Nvfp4},
    {PrecisionRecipe::kModdedNanogptHead, "modded_nanogpt_head",
     "KellerJordan/modded-nanogpt, January 2025", ModdedNanogptHead},
};

// "nvfp4 stochastically", or that the operand stays as it is stored.
std::string OperandText(const std::optional<OperandConfig>& operand) {
  if (!operand || !operand->format) return "as stored";
  return FormatName(*operand->format) +
         (operand->rounding == RoundingKind::kStochastic ? " stochastically" : "");
}

const char* ScaleText(Scaling kind) {
  switch (kind) {
    case Scaling::kNone:
      return "no scale";
    case Scaling::kCurrent:
      return "a scale of each tensor";
    case Scaling::kRow:
      return "a scale of each row";
    case Scaling::kDelayed:
      return "a scale from earlier steps";
    case Scaling::kStatic:
      return "fixed scales";
    case Scaling::kAdaptive:
      return "a scale of each tensor by exact_range";
    case Scaling::kPredicted:
      return "predicted scales of weights";
  }
  return "";
}

std::string RecipeText(const Recipe& recipe) {
  const OperandsConfig operands = recipe.operands();
  const auto of = [&](Operand operand) {
    return OperandText(operands.by_operand[IndexOf(operand)]);
  };
  std::string text = "x " + of(kForwardX) + ", w " + of(kForwardW) + ", dy " + of(kDxDy);
  if (of(kDwX) != of(kForwardX)) text += ", x of dw " + of(kDwX);
  if (operands.tensor_scaling) text += std::string("; ") + ScaleText(operands.tensor_scaling->kind);
  if (operands.hadamard) text += "; dw after a Hadamard transform";
  if (operands.spared) text += "; the first and last layer spared";
  return text + "; " + recipe.source;
}

}  // namespace

std::vector<RecipeLine> Recipes() {
  std::vector<RecipeLine> lines;
  for (const Recipe& recipe : kRecipes) lines.push_back({recipe.name, RecipeText(recipe)});
  return lines;
}

EnumNames<PrecisionRecipe> LayerRecipeNames() {
  EnumNames<PrecisionRecipe> names;
  for (const Recipe& recipe : kRecipes) names.emplace_back(recipe.name, recipe.recipe);
  return names;
}

const EnumNames<PrecisionRecipe>& RecipeNames() {
  static const EnumNames<PrecisionRecipe> names = [] {
    EnumNames<PrecisionRecipe> all = LayerRecipeNames();
    all.insert(all.begin(), {"none", PrecisionRecipe::kNone});
    return all;
  }();
  return names;
}

namespace {

// A tensor_scaling that was written without a kind: the recipe's, with the keys that were written.
void CompleteScaling(const std::optional<TensorScalingConfig>& recipe, TensorScalingConfig& to,
                     const YamlNode& map, const ReadContext& context) {
  const Entry& entry = *map.Find("operands")->FindEntry("tensor_scaling");
  const std::string path = Join(context.path, "operands.tensor_scaling");
  if (!recipe) {
    context.problems.Add(entry.value, Join(path, "kind"),
                         "missing; only a recipe with a tensor_scaling gives it");
    return;
  }
  // A key with a problem was told of when it was read.
  for (const Entry& key : entry.value.entries)
    if (!context.problems.Clean({Join(path, key.key.text)})) return;
  to = *recipe;
  Section section = OperandScalingSection(to);
  for (Key& key : section.keys) key.required_for.clear();
  for (const auto& [name, kind] : OperandScalingNames())
    if (kind == to.kind) section.chosen = name;
  ReadSection(entry.value, section, {context.problems, path, entry.key});
  to.lacks_kind = false;
}

}  // namespace

void FillFromRecipe(PrecisionRecipe recipe, OperandsConfig& to, const YamlNode& map,
                    const ReadContext& context) {
  const auto* known = std::ranges::find(kRecipes, recipe, &Recipe::recipe);
  const OperandsConfig from = known == std::end(kRecipes) ? OperandsConfig() : known->operands();
  for (std::size_t i = 0; i < kOperands; ++i)
    if (!to.by_operand[i]) to.by_operand[i] = from.by_operand[i];
  if (!to.tensor_scaling)
    to.tensor_scaling = from.tensor_scaling;
  else if (to.tensor_scaling->lacks_kind)
    CompleteScaling(from.tensor_scaling, *to.tensor_scaling, map, context);
  if (!to.hadamard) to.hadamard = from.hadamard;
  if (!to.spared) to.spared = from.spared;
}

}  // namespace ada::config
