// Applies the section `precision` from the general to the particular: its format, its roles, then
// its globs in their order.
#include "graph/network/precision.h"

#include <algorithm>

#include "error.h"
#include "io/text.h"
#include "number/random.h"
#include "number/table_grid.h"

namespace ada::graph {
namespace {

using config::PrecisionConfig;

// Roles that are not set keep their formats.
void Apply(const config::RoleFormatsConfig& roles, LayerFormats& formats) {
  if (roles.activations) formats.activations = *roles.activations;
  if (roles.weights) formats.weights = *roles.weights;
  if (roles.gradients) formats.gradients = *roles.gradients, formats.product_gradients.reset();
  if (roles.weight_gradients) formats.weight_gradients = *roles.weight_gradients;
}

bool StaysWide(config::WithinAttention kept) { return kept == config::WithinAttention::kFp32; }

// dw is fp32 unless the section sets weight_gradients, whatever `format` is.
LayerFormats BaseFormats(const PrecisionConfig& precision) {
  const NumberFormat& format = precision.format;
  LayerFormats formats{format, format, format, kFp32};
  Apply(precision, formats);
  return formats;
}

// Last of all, so that modes and saturation reach formats of any origin.
LayerFormats Finish(const PrecisionConfig& precision, LayerFormats formats) {
  const auto finish = [&](NumberFormat& format) {
    format = WithModes(
        format, config::ModesOf(precision.rounding, precision.overflow, precision.random_bits));
    if (precision.overflow == config::OverflowKind::kSaturate && format != kFp32)
      format.saturate = true;
  };
  for (NumberFormat* format :
       {&formats.activations, &formats.weights, &formats.gradients, &formats.weight_gradients})
    finish(*format);
  if (formats.product_gradients) finish(*formats.product_gradients);
  return formats;
}

// The rules of some operands while entries are applied, and which of them have scales of another
// kind than all.
template <std::size_t kCount>
struct Gathered {
  std::array<OperandRule, kCount> rules;
  std::array<std::optional<config::TensorScalingConfig::Kind>, kCount> kinds;

  // An operand that is set replaces its whole earlier rule; one without a format turns the rounding
  // off. Elements of blocks saturate, because a scale that is a power of two can leave the block's
  // largest value above the format's.
  void Take(const std::array<std::optional<config::OperandConfig>, kCount>& given) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const std::optional<config::OperandConfig>& operand = given[i];
      if (!operand) continue;
      OperandRule& rule = rules[i];
      rule = {};
      rule.rounds = operand->format.has_value();
      rule.stochastic = config::IsStochastic(operand->rounding);
      rule.rounding = operand->rounding, rule.random_bits = operand->random_bits;
      rule.as_forward = operand->as_forward;
      rule.overflow = operand->overflow;
      kinds[i] = operand->tensor_scaling;
      if (!operand->format) continue;
      if (const auto* block = std::get_if<BlockFormat>(&*operand->format)) {
        rule.block = *block, rule.format = block->element;
        rule.format.saturate = true;
      } else {
        rule.format = std::get<NumberFormat>(*operand->format);
      }
    }
  }
  // With the scales of all, but for their kind where an operand has its own.
  std::array<OperandRule, kCount> Finished(const PrecisionConfig& precision,
                                           const config::TensorScalingConfig& scaling,
                                           bool of_attention);
  static bool IsOfWeight(std::size_t i) {
    return kCount == kOperands && IsWeight(static_cast<Operand>(i));
  }
};

// Formats that have no scale of the tensor beside those of blocks cannot have an adaptive one.
void RefuseAdaptive(const OperandRule& rule, bool of_attention) {
  const bool adaptive = rule.scaling.kind == config::TensorScalingConfig::Kind::kAdaptive;
  if (!rule.rounds || !adaptive || (rule.adapts() && !of_attention)) return;
  throw ConfigError(
      "precision.operands.tensor_scaling: kind adaptive is for block formats with a "
      "scale of the tensor (nvfp4), and not in attention; got " +
      FormatName(rule.named()) + (of_attention ? " in attention" : "") +
      ": give that operand {format: ..., tensor_scaling: none}, or another kind");
}

// Plain formats alone are changed: one with a scale saturates, unless `overflow: format`.
void FinishRule(const PrecisionConfig& precision, OperandRule& rule) {
  if (rule.block || rule.format == kFp32) return;
  const bool scaled = rule.scaling.kind != config::TensorScalingConfig::Kind::kNone;
  const config::OverflowKind overflow = rule.overflow.value_or(precision.overflow);
  rule.format = WithModes(rule.format, config::ModesOf(rule.rounding, overflow, rule.random_bits));
  rule.format.saturate = rule.format.saturate || overflow == config::OverflowKind::kSaturate ||
                         (scaled && overflow == config::OverflowKind::kDefault);
}

template <std::size_t kCount>
std::array<OperandRule, kCount> Gathered<kCount>::Finished(
    const PrecisionConfig& precision, const config::TensorScalingConfig& scaling,
    bool of_attention) {
  for (std::size_t i = 0; i < kCount; ++i) {
    rules[i].scaling = scaling;
    config::TensorScalingConfig::Kind& kind = rules[i].scaling.kind;
    if (kinds[i]) kind = *kinds[i];
    if (kind == config::TensorScalingConfig::Kind::kPredicted && !IsOfWeight(i))
      kind = config::TensorScalingConfig::Kind::kCurrent;
    RefuseAdaptive(rules[i], of_attention);
    FinishRule(precision, rules[i]);
  }
  return rules;
}

// The very values of the forward product: its rule, whatever was asked of this one.
void TakeFromForward(LayerOperands& operands) {
  for (const auto& [forward, backward] : {std::pair{Operand::kForwardW, Operand::kDxW},
                                          std::pair{Operand::kForwardX, Operand::kDwX}}) {
    OperandRule& rule = operands.rules[IndexOf(backward)];
    if (!rule.as_forward) continue;
    rule = operands.rules[IndexOf(forward)];
    rule.as_forward = true;
  }
}

// The two operands of each product, and those that may be as_forward beside what they follow.
constexpr std::array<std::pair<const char*, std::array<Operand, 2>>, 3> kProducts = {{
    {"forward", {Operand::kForwardX, Operand::kForwardW}},
    {"dx", {Operand::kDxDy, Operand::kDxW}},
    {"dw", {Operand::kDwX, Operand::kDwDy}},
}};

// If either operand of a product is rounded, both are transformed; the other one then stays fp32.
// Values that were transformed for one product are of no use to another.
void Transform(const std::optional<config::HadamardConfig>& hadamard, const std::string& layer,
               LayerOperands& operands) {
  if (!hadamard) return;
  const auto rule_of = [&](Operand operand) -> OperandRule& {
    return operands.rules[IndexOf(operand)];
  };
  for (const auto& [product, both] : kProducts) {
    if (!Contains(hadamard->products, product)) continue;
    if (!(rule_of(both[0]).rounds || rule_of(both[1]).rounds)) continue;
    for (const Operand operand : {Operand::kDxW, Operand::kDwX}) {
      const std::string name = NameOf(operand);
      const bool meets = product == std::string("forward") || name.starts_with(product);
      if (rule_of(operand).as_forward && meets)
        throw ConfigError("precision.operands: layer " + layer + ": " + name +
                          " is as_forward, and hadamard transforms the operands of " + product +
                          "; expected one of the two");
    }
    for (const Operand operand : both) {
      OperandRule& rule = rule_of(operand);
      if (rule.scaling.kind == config::TensorScalingConfig::Kind::kPredicted && rule.rounds)
        throw ConfigError("precision.operands: layer " + layer + ": the scale of " +
                          NameOf(operand) +
                          " is predicted from the weights, and hadamard transforms them before "
                          "they are rounded; expected one of the two");
      rule.rounds = true;
      rule.hadamard.size = hadamard->size;
      rule.hadamard.random = hadamard->signs == config::HadamardConfig::Signs::kRandom;
      rule.hadamard.stream = StreamId("signs:" + layer);
      rule.hadamard.listed.assign(hadamard->listed.begin(), hadamard->listed.end());
    }
  }
}

// The operands of one layer: those of `precision.operands`, changed key by key by the entries of
// `precision.layers` whose glob matches; a spared layer has the formats of those entries only.
// Hadamard comes last, because only after all entries it is known which operands are rounded.
LayerOperands OperandsOf(const PrecisionConfig& precision, const std::string& layer, bool spared) {
  Gathered<kOperands> of_weights;
  Gathered<kAttentionTensors> attention;
  config::TensorScalingConfig scaling;
  std::optional<config::HadamardConfig> hadamard;
  const auto take = [&](const config::OperandsConfig& given, bool formats) {
    if (formats) of_weights.Take(given.by_operand), attention.Take(given.attention);
    if (given.tensor_scaling) scaling = *given.tensor_scaling;
    if (given.hadamard) hadamard = given.hadamard;
  };
  take(precision.operands, !spared);
  for (const config::LayerPrecisionConfig& entry : precision.layers)
    if (GlobMatch(entry.match, layer)) take(entry.operands, true);
  LayerOperands operands = {of_weights.Finished(precision, scaling, /*of_attention=*/false),
                            attention.Finished(precision, scaling, /*of_attention=*/true)};
  TakeFromForward(operands);
  Transform(hadamard, layer, operands);
  return operands;
}

void Apply(const config::AccumulatesConfig& given, scaling::Accumulators& accumulators) {
  for (std::size_t i = 0; i < accumulators.size(); ++i)
    if (given.by_matmul[i]) accumulators[i] = given.by_matmul[i]->rule;
}

// As OperandsOf.
scaling::Accumulators AccumulatorsOf(const PrecisionConfig& precision, const std::string& layer,
                                     bool spared) {
  scaling::Accumulators accumulators;
  if (!spared) Apply(precision.accumulate, accumulators);
  for (const config::LayerPrecisionConfig& entry : precision.layers)
    if (GlobMatch(entry.match, layer)) Apply(entry.accumulate, accumulators);
  return accumulators;
}

}  // namespace

bool LayerOperands::any() const {
  const auto rounds = [](const OperandRule& rule) { return rule.rounds; };
  return std::any_of(rules.begin(), rules.end(), rounds) ||
         std::any_of(attention.begin(), attention.end(), rounds);
}

LayerFormats FormatsFrom(const PrecisionConfig& precision, const std::string& layer,
                         const LayerFormats& start) {
  LayerFormats formats = start;
  if (precision.weight_gradients) formats.weight_gradients = *precision.weight_gradients;
  for (const config::LayerPrecisionConfig& entry : precision.layers) {
    if (!GlobMatch(entry.match, layer)) continue;
    if (entry.format) {
      formats.activations = formats.weights = formats.gradients = *entry.format;
      formats.product_gradients.reset();
    }
    Apply(entry, formats);
    if (entry.probabilities) formats.wide_probabilities = StaysWide(*entry.probabilities);
    if (entry.score_gradients) formats.wide_score_gradients = StaysWide(*entry.score_gradients);
  }
  return Finish(precision, formats);
}

LayerFormats FormatsOf(const PrecisionConfig& precision, const std::string& layer) {
  return FormatsFrom(precision, layer, BaseFormats(precision));
}

// The functions keep copies of the section, as graphs are built later and more than once.
Precision ResolvePrecision(const PrecisionConfig& precision, bool policy_owns_gradients) {
  const config::TensorScalingConfig& scaling = precision.tensor_scaling;
  Precision result;
  result.base = Finish(precision, BaseFormats(precision));
  result.formats_of = [precision](const std::string& layer) { return FormatsOf(precision, layer); };
  if (precision.preset != config::PrecisionPreset::kNone) {
    result.autocast = precision.format;
    result.autocast_on_cpu = precision.preset == config::PrecisionPreset::kAutocastCpu;
    result.formats_from = [precision](const std::string& layer, const LayerFormats& start) {
      return FormatsFrom(precision, layer, start);
    };
  }
  result.spared = precision.operands.spared.value_or(config::SparedConfig());
  result.operands_of = [precision](const std::string& layer, bool spared) {
    return OperandsOf(precision, layer, spared);
  };
  result.spared_sums = precision.accumulate.spared.value_or(result.spared);
  result.accumulators_of = [precision](const std::string& layer, bool spared) {
    return AccumulatorsOf(precision, layer, spared);
  };
  result.stochastic = config::IsStochastic(precision.rounding);
  result.scaled_forward = scaling.kind == config::TensorScalingConfig::Kind::kDelayed;
  result.scaled_backward = result.scaled_forward && !policy_owns_gradients;
  result.scaled_saturate = precision.overflow == config::OverflowKind::kDefault ||
                           precision.overflow == config::OverflowKind::kSaturate;
  result.tensor_scale = scaling;
  return result;
}

double StaticScaleOf(Operand operand, const config::TensorScalingConfig::StaticScales& values) {
  const bool is_x = operand == Operand::kForwardX || operand == Operand::kDwX;
  return IsWeight(operand) ? values.w : is_x ? values.x : values.dy;
}

}  // namespace ada::graph
