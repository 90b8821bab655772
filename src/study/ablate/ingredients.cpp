// What a recipe is made of, and the same recipe without some of it.
#include <algorithm>
#include <span>

#include "io/text.h"
#include "scaling/rules/accumulator.h"
#include "study/ablate/ablation.h"
#include "study/config_changes.h"

namespace ada::study {
namespace {

using config::LayerPrecisionConfig;
using config::OperandConfig;
using config::PrecisionConfig;
using config::RoundingKind;
using config::TensorScalingConfig;
using Kind = Ingredient::Kind;

constexpr char kLayersPrefix[] = "layers ";
constexpr char kAttention[] = "attention";

// Calls `use` with the section itself, each entry of its layers, and each switch with its layers.
template <class Precision, class Use>
void EachSection(Precision& precision, const Use& use) {
  use(precision);
  for (auto& layer : precision.layers) use(layer);
  for (auto& entry : precision.schedule) {
    use(entry);
    for (auto& layer : entry.layers) use(layer);
  }
}

// Calls `use` with each operand that is set, attention's too.
template <class Precision, class Use>
void EachOperand(Precision& precision, const Use& use) {
  EachSection(precision, [&](auto& section) {
    for (auto& operand : section.operands.by_operand)
      if (operand) use(*operand);
    for (auto& operand : section.operands.attention)
      if (operand) use(*operand);
  });
}

// Whether any operand of any part of the section is as `asked`.
bool AnyOperand(const PrecisionConfig& precision, bool (*asked)(const OperandConfig&)) {
  bool any = false;
  EachOperand(precision, [&](const OperandConfig& operand) { any = any || asked(operand); });
  return any;
}

// The text of an operand's format; "": it is taken as it is stored wherever it is said.
std::string FormatOfOperand(const PrecisionConfig& precision, std::size_t index) {
  std::string text;
  EachSection(precision, [&](const auto& section) {
    const auto& operand = section.operands.by_operand[index];
    if (operand && operand->format && text.empty()) text = FormatName(*operand->format);
  });
  return text;
}

bool RoundsAttention(const PrecisionConfig& precision) {
  bool any = false;
  EachSection(precision, [&](const auto& section) {
    for (const auto& operand : section.operands.attention)
      any = any || (operand && operand->format);
  });
  return any;
}

std::string RuleOfSums(const PrecisionConfig& precision, std::size_t matmul) {
  std::string text;
  EachSection(precision, [&](const auto& section) {
    const auto& sums = section.accumulate.by_matmul[matmul];
    if (sums && sums->rule && text.empty()) text = scaling::AccumulatorText(*sums->rule);
  });
  return text;
}

bool HasTensorScale(const OperandConfig& operand) {
  const auto* block = operand.format ? std::get_if<BlockFormat>(&*operand.format) : nullptr;
  if (block != nullptr) return block->tensor_scale;
  return operand.tensor_scaling.value_or(TensorScalingConfig::Kind::kNone) !=
         TensorScalingConfig::Kind::kNone;
}
bool IsSquare(const OperandConfig& operand) {
  const auto* block = operand.format ? std::get_if<BlockFormat>(&*operand.format) : nullptr;
  return block != nullptr && block->square;
}
bool IsStochastic(const OperandConfig& operand) {
  return operand.format && operand.rounding == RoundingKind::kStochastic;
}

bool AnyTensorScale(const PrecisionConfig& precision) {
  constexpr auto kNone = TensorScalingConfig::Kind::kNone;
  bool any = precision.tensor_scaling.kind != kNone || AnyOperand(precision, HasTensorScale);
  EachSection(precision, [&](const auto& section) {
    const auto& scaling = section.operands.tensor_scaling;
    any = any || (scaling && scaling->kind != kNone);
  });
  return any;
}
bool AnyHadamard(const PrecisionConfig& precision) {
  bool any = false;
  EachSection(precision, [&](const auto& section) { any = any || section.operands.hadamard; });
  return any;
}

// An entry of precision.layers that makes its layers lose more than others.
bool Rounds(const LayerPrecisionConfig& layer) {
  const auto rounds = [](const auto& operand) { return operand && operand->format; };
  const auto& operands = layer.operands.by_operand;
  const auto& of_attention = layer.operands.attention;
  const auto& sums = layer.accumulate.by_matmul;
  return std::any_of(operands.begin(), operands.end(), rounds) ||
         std::any_of(of_attention.begin(), of_attention.end(), rounds) ||
         std::any_of(sums.begin(), sums.end(), [](const auto& sum) { return sum && sum->rule; });
}

// A role whose format is neither bf16 nor fp32 can be ablated to bf16.
constexpr auto kStoredRoles = std::span(kFormatRoles).first<3>();  // weight gradients are apart
NumberFormat StoredFormat(const PrecisionConfig& precision, const FormatRole& role) {
  return (precision.*role.member).value_or(precision.format);
}
bool IsAblatedFormat(const NumberFormat& format) { return format != kBf16 && format != kFp32; }

// Takes the smallest part of this name out.
void DropPart(const std::string& part, PrecisionConfig& precision) {
  const auto as_stored = [](std::optional<OperandConfig>& operand) {
    if (operand && operand->format) operand = OperandConfig{};
  };
  for (std::size_t k = 0; k < kOperands; ++k)
    if (part == kOperandNames[k])
      EachSection(precision, [&](auto& section) { as_stored(section.operands.by_operand[k]); });
  if (part == kAttention)
    EachSection(precision, [&](auto& section) {
      for (std::optional<OperandConfig>& operand : section.operands.attention) as_stored(operand);
    });
  for (std::size_t matmul = 0; matmul < scaling::kLayerMatmuls; ++matmul)
    if (part == std::string("sums.") + scaling::kLayerMatmulNames[matmul])
      EachSection(precision, [&](auto& section) {
        auto& sums = section.accumulate.by_matmul[matmul];
        if (sums) sums = config::AccumulateConfig{};
      });
  for (const FormatRole& role : kStoredRoles)
    if (part == role.name) precision.*role.member = kBf16;
  if (part == "format") precision.format = kBf16;
  if (part == "weight_gradients") precision.weight_gradients.reset();
  if (part == "accumulated_gradients") precision.accumulated_gradients = {};
  if (part == "masters") precision.masters = {};
  if (part == "optimizer_state") precision.optimizer_state = {};
}

void DropRemedy(const std::string& name, AblatedRecipe& recipe) {
  PrecisionConfig& precision = recipe.precision;
  const auto each_block = [&](void (*change)(BlockFormat&)) {
    EachOperand(precision, [&](OperandConfig& operand) {
      auto* block = operand.format ? std::get_if<BlockFormat>(&*operand.format) : nullptr;
      if (block != nullptr) change(*block);
    });
  };
  if (name == "stochastic") {
    precision.rounding = RoundingKind::kNearest;
    EachOperand(precision,
                [](OperandConfig& operand) { operand.rounding = RoundingKind::kNearest; });
  } else if (name == "hadamard") {
    EachSection(precision, [](auto& section) { section.operands.hadamard.reset(); });
  } else if (name == "squares") {
    each_block([](BlockFormat& block) { block.square = false; });
  } else if (name == "tensor_scale") {
    precision.tensor_scaling = {};
    EachSection(precision, [](auto& section) { section.operands.tensor_scaling.reset(); });
    EachOperand(precision, [](OperandConfig& operand) { operand.tensor_scaling.reset(); });
    each_block([](BlockFormat& block) { block.tensor_scale = block.row_scaled = false; });
  } else if (name == "spared.first" || name == "spared.last") {
    const auto member =
        name == "spared.first" ? &config::SparedConfig::first : &config::SparedConfig::last;
    if (precision.operands.spared) (*precision.operands.spared).*member = 0;
    if (precision.accumulate.spared) (*precision.accumulate.spared).*member = 0;
  } else if (name == "switch") {
    precision.schedule.clear();
  } else if (name == "policy") {
    recipe.has_policy = false;
  } else {
    std::erase_if(precision.layers, [&](const LayerPrecisionConfig& layer) {
      return name == kLayersPrefix + layer.match;
    });
  }
}

// Collects the ingredients in the order in which they are told.
class IngredientCollector {
 public:
  explicit IngredientCollector(const AblatedRecipe& recipe)
      : recipe_(recipe), precision_(recipe.precision) {}

  std::vector<Ingredient> Run() {
    Products();
    Sums();
    Stored();
    if (!found_.empty() || recipe_.has_policy) Remedies();
    return found_;
  }

 private:
  void Rounding(std::string name, std::string text, std::vector<std::string> parts) {
    found_.push_back({std::move(name), std::move(text), Kind::kRounding, std::move(parts)});
  }
  void Remedy(std::string name, std::string text) {
    found_.push_back({std::move(name), std::move(text), Kind::kRemedy, {}});
  }

  // Products first; an operand by itself where its matmul has two that are rounded.
  void Products() {
    std::vector<Ingredient> operands;
    for (std::size_t matmul = 0; matmul < scaling::kLayerMatmuls; ++matmul) {
      std::vector<std::string> parts;
      std::string text;
      for (std::size_t k = 2 * matmul; k < 2 * matmul + 2; ++k) {
        const std::string format = FormatOfOperand(precision_, k);
        if (format.empty()) continue;
        parts.emplace_back(kOperandNames[k]);
        text += (text.empty() ? "" : ", ") + std::string(kOperandNames[k]) + " in " + format;
        operands.push_back({kOperandNames[k], "in " + format, Kind::kRounding, {kOperandNames[k]}});
      }
      if (parts.size() == 2) {
        Rounding(scaling::kLayerMatmulNames[matmul], text, parts);
        continue;
      }
      if (parts.empty()) continue;
      found_.push_back(operands.back());
      operands.pop_back();
    }
    found_.insert(found_.end(), operands.begin(), operands.end());
    if (RoundsAttention(precision_))
      Rounding(kAttention, "operands of attention's products", {kAttention});
  }

  void Sums() {
    std::vector<std::string> parts, rules;
    for (std::size_t matmul = 0; matmul < scaling::kLayerMatmuls; ++matmul) {
      const std::string rule = RuleOfSums(precision_, matmul);
      if (rule.empty()) continue;
      parts.push_back(std::string("sums.") + scaling::kLayerMatmulNames[matmul]);
      rules.push_back(rule);
    }
    if (parts.size() > 1) Rounding("sums", "made by " + rules.front(), parts);
    for (std::size_t i = 0; i < parts.size(); ++i)
      Rounding(parts[i], "made by " + rules[i], {parts[i]});
  }

  void Stored() {
    if (precision_.preset != config::PrecisionPreset::kNone) {
      if (IsAblatedFormat(precision_.format))
        Rounding("format", FormatName(precision_.format) + ", not bf16", {"format"});
    } else {
      for (const FormatRole& role : kStoredRoles)
        if (const NumberFormat format = StoredFormat(precision_, role); IsAblatedFormat(format))
          Rounding(role.name, "in " + FormatName(format) + ", not bf16", {role.name});
    }
    if (precision_.weight_gradients && *precision_.weight_gradients != kFp32)
      Rounding("weight_gradients", "in " + FormatName(*precision_.weight_gradients),
               {"weight_gradients"});
    if (precision_.accumulated_gradients.format != kFp32)
      Rounding("accumulated_gradients", "in " + FormatName(precision_.accumulated_gradients.format),
               {"accumulated_gradients"});
    if (precision_.masters.format != kFp32)
      Rounding("masters", "in " + FormatName(precision_.masters.format), {"masters"});
    if (!precision_.optimizer_state.plain())
      Rounding("optimizer_state", "not in fp32", {"optimizer_state"});
    for (const LayerPrecisionConfig& layer : precision_.layers)
      if (Rounds(layer)) Rounding(kLayersPrefix + layer.match, "what is said of these layers", {});
  }

  void Remedies() {
    if (precision_.rounding == RoundingKind::kStochastic || AnyOperand(precision_, IsStochastic))
      Remedy("stochastic", "stochastic rounding; without it: to nearest");
    if (AnyHadamard(precision_)) Remedy("hadamard", "the transform of operands");
    if (AnyOperand(precision_, IsSquare))
      Remedy("squares", "blocks of two axes; without it: of one");
    if (AnyTensorScale(precision_)) Remedy("tensor_scale", "scales of tensors or their rows");
    const config::SparedConfig spared = precision_.operands.spared.value_or(config::SparedConfig{});
    const config::SparedConfig sums = precision_.accumulate.spared.value_or(config::SparedConfig{});
    if (spared.first > 0 || sums.first > 0) Remedy("spared.first", "first layers as stored");
    if (spared.last > 0 || sums.last > 0) Remedy("spared.last", "last layers as stored");
    if (!precision_.schedule.empty())
      Remedy("switch",
             "what changes at step " + std::to_string(precision_.schedule.front().from_step));
    if (recipe_.has_policy) Remedy("policy", "the scaling policy");
    for (const LayerPrecisionConfig& layer : precision_.layers)
      if (!Rounds(layer)) Remedy(kLayersPrefix + layer.match, "what is said of these layers");
  }

  const AblatedRecipe& recipe_;
  const PrecisionConfig& precision_;
  std::vector<Ingredient> found_;
};

}  // namespace

std::vector<Ingredient> IngredientsOf(const AblatedRecipe& recipe) {
  return IngredientCollector(recipe).Run();
}

AblatedRecipe WithoutIngredient(const AblatedRecipe& recipe, const Ingredient& ingredient) {
  AblatedRecipe less = recipe;
  less.precision.recipe = config::PrecisionRecipe::kNone;  // its operands are written out
  for (const std::string& part : ingredient.parts) DropPart(part, less.precision);
  if (ingredient.parts.empty()) DropRemedy(ingredient.name, less);
  return less;
}

AblatedRecipe OnlyIngredients(const AblatedRecipe& recipe, const std::vector<Ingredient>& kept) {
  AblatedRecipe only = recipe;
  const Kind kind = kept.empty() ? Kind::kRemedy : kept.front().kind;
  const auto is_kept = [&](const std::string& name) {
    return std::any_of(kept.begin(), kept.end(),
                       [&](const Ingredient& other) { return other.name == name; });
  };
  const auto has_part = [&](const std::string& part) {
    return std::any_of(kept.begin(), kept.end(),
                       [&](const Ingredient& other) { return Contains(other.parts, part); });
  };
  for (const Ingredient& one : IngredientsOf(recipe)) {
    if (one.kind != kind) continue;
    if (one.parts.empty() && !is_kept(one.name)) only = WithoutIngredient(only, one);
    for (const std::string& part : one.parts)
      if (!has_part(part)) DropPart(part, only.precision);
  }
  // What is said of layers is kept as a whole.
  for (const Ingredient& other : kept)
    if (other.parts.empty() && kind == Kind::kRounding)
      for (std::size_t i = 0; i < only.precision.layers.size(); ++i)
        for (const LayerPrecisionConfig& layer : recipe.precision.layers)
          if (other.name == kLayersPrefix + layer.match &&
              only.precision.layers[i].match == layer.match)
            only.precision.layers[i] = layer;
  only.precision.recipe = config::PrecisionRecipe::kNone;
  return only;
}

AblatedRecipe Plain(const AblatedRecipe& recipe) {
  AblatedRecipe plain = recipe;
  for (const Ingredient& one : IngredientsOf(recipe)) plain = WithoutIngredient(plain, one);
  return plain;
}

}  // namespace ada::study
