// Makes the style of each rounding from its name, which determines its random numbers, its scale
// and its histogram.
#include "graph/rounding_styles.h"

#include "error.h"
#include "graph/network/precision.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "number/number_format.h"
#include "number/random.h"

namespace ada::graph {

// The scales of `share` come first: FindOrMake makes only those that do not exist yet.
RoundingStyles::RoundingStyles(const GraphSpec& spec, const Graph* share,
                               SharedArena& per_tensor_scales, SharedArena& results,
                               SharedArena& bins)
    : training_(spec.training),
      stochastic_(spec.precision.stochastic && spec.training),
      counted_(spec.counted),
      histograms_(spec.training ? spec.histograms : std::vector<std::string>{}),
      rule_(spec.precision.tensor_scale),
      per_tensor_scales_(per_tensor_scales),
      results_(results),
      bins_arena_(bins) {
  if (!share) return;
  for (const ScaledTensor& t : share->scaled_tensors()) shared_[t.name()] = t.scale;
}

scaling::StateMap TensorScale::Save() const {
  const scaling::TensorScaler& scaler = *per_tensor_scale.host;
  return predicted ? scaling::SavePredictedScale(*predicted, scaler)
                   : scaling::SaveTensorScale(history, scaler);
}

// The formats before and after a switch may differ (AdoptTensorScale).
void TensorScale::Load(const scaling::StateMap& state, const std::string& tensor, bool switched) {
  scaling::TensorScaler& scaler = *per_tensor_scale.host;
  // What was predicted is of no use to a history.
  if (switched && (predicted || scaling::IsPredictedScale(state))) return;
  if (predicted) return scaling::LoadPredictedScale(state, tensor, *predicted, scaler);
  const auto load = switched ? scaling::AdoptTensorScale : scaling::LoadTensorScale;
  load(state, tensor, history, scaler);
}

// Each name has one scale: further calls for it, for example when a plan is made again, return the
// same one.
TensorScale* RoundingStyles::FindOrMake(const std::string& name, const NumberFormat& format,
                                        const scaling::TensorScaleRule& rule) {
  TensorScale*& scale = scales_[name];
  if (scale) return scale;
  if (const auto found = shared_.find(name); found != shared_.end()) return scale = found->second;
  owned_.push_back(std::make_unique<TensorScale>());
  scale = owned_.back().get();
  scale->per_tensor_scale = per_tensor_scales_.Add<scaling::TensorScaler>();
  scale->history.rule = rule;
  scale->history.rule.format_max = format.largest();
  return scale;
}

backend::RoundingStyle RoundingStyles::Of(const std::string& layer, const std::string& tensor,
                                          const TensorStorage& stored_as) {
  backend::RoundingStyle style;
  style.stochastic = stochastic_ && stored_as.format != kFp32;
  // The name determines the random numbers, so that neither the order of layers nor fusion changes
  // a result.
  style.stream = StreamId("round:" + layer + "." + tensor);
  const std::string name = layer + "." + tensor;
  if (stored_as.has_per_tensor_scale)
    style.per_tensor_scale = FindOrMake(name, stored_as.format, rule_)->per_tensor_scale.backend;
  style.counted = Contains(counted_, StatisticOf(tensor));
  if (Contains(histograms_, StatisticOf(tensor)) && layer != "input")
    style.bins = FindOrMakeBins(name);
  return style;
}

namespace {

// The operand of the forward product that has the same tensor.
Operand ForwardOperandOf(Operand operand) {
  return IsWeight(operand) ? Operand::kForwardW : Operand::kForwardX;
}

// The fixed scale of the tensor of an operand of attention.
double StaticScaleOf(AttentionOperand operand,
                     const config::TensorScalingConfig::StaticScales& values) {
  switch (TensorOf(operand)) {
    case AttentionTensor::kQ:
      return values.q;
    case AttentionTensor::kK:
      return values.k;
    case AttentionTensor::kV:
      return values.v;
    case AttentionTensor::kP:
      return values.p;
    case AttentionTensor::kDy:
      return values.dy;
    case AttentionTensor::kDs:
      return values.ds;
  }
  throw InternalError("a tensor that is none of attention's");
}

}  // namespace

// A block-scaled format has its scales in its blocks, and fp32 needs none. A delayed or predicted
// scale is computed once a step on the host; a current one by the op, from the tensor that it
// rounds, and those of rows within it.
backend::OperandRounding RoundingStyles::RoundingOf(const std::string& layer,
                                                    const std::string& operand,
                                                    const std::string& of, const OperandRule& rule,
                                                    double fixed) {
  using Kind = config::TensorScalingConfig::Kind;
  backend::OperandRounding rounding;
  rounding.rounds = rule.rounds;
  if (!rule.rounds) return rounding;
  rounding.format = rule.format, rounding.block = rule.block;
  rounding.hadamard = rule.hadamard;
  rounding.style = Of(layer, operand, {rule.format, Storage::kF32, false});
  rounding.style.stream = StreamId("round:" + layer + "." + of);
  rounding.style.stochastic = rule.stochastic && training_ && rule.format != kFp32;
  const config::TensorScalingConfig& scaling = rule.scaling;
  if (rule.adapts()) {
    SharedArray<scaling::TensorScaler>& power = current_[layer + "." + operand];
    if (power.count == 0) power = results_.Add<scaling::TensorScaler>();
    rounding.adaptive = scaling.adaptive, rounding.current = power.backend;
  }
  if (rule.block || rule.format == kFp32 || scaling.kind == Kind::kNone) return rounding;
  rounding.rule = scaling;
  rounding.rule.format_max = rule.format.largest();
  rounding.rule.integer = IsInteger(rule.format);
  if (scaling.kind == Kind::kRow) {
    rounding.row_scaled = true;
    return rounding;
  }
  if (scaling.kind == Kind::kDelayed || scaling.kind == Kind::kPredicted) {
    TensorScale* const scale = FindOrMake(layer + "." + of, rule.format, rounding.rule);
    if (scaling.kind == Kind::kPredicted && !scale->predicted)
      scale->predicted = {rounding.rule, scaling.interval};
    rounding.style.per_tensor_scale = scale->per_tensor_scale.backend;
    return rounding;
  }
  SharedArray<scaling::TensorScaler>& scale = current_[layer + "." + operand];
  if (scale.count == 0) scale = results_.Add<scaling::TensorScaler>();
  rounding.style.per_tensor_scale = scale.backend;
  if (scaling.kind == Kind::kCurrent)
    rounding.current = scale.backend;
  else
    scale.host->scale = scaling.power_of_two ? scaling::CutToPowerOfTwo(static_cast<float>(fixed))
                                             : static_cast<float>(fixed);
  return rounding;
}

// What is as the forward product's takes its random words and signs too.
backend::OperandRounding RoundingStyles::OperandOf(const std::string& layer, Operand operand,
                                                   const LayerOperands& operands) {
  const OperandRule& rule = operands.Of(operand);
  const Operand as = rule.as_forward ? ForwardOperandOf(operand) : operand;
  backend::OperandRounding rounding = RoundingOf(layer, NameOf(operand), NameOf(as), rule,
                                                 StaticScaleOf(operand, rule.scaling.values));
  if (rule.rounds && as != operand) rounding.laid_as = as;
  return rounding;
}

backend::OperandRounding RoundingStyles::OperandOf(const std::string& layer,
                                                   AttentionOperand operand,
                                                   const LayerOperands& operands) {
  const OperandRule& rule = operands.Of(operand);
  return RoundingOf(layer, NameOf(operand), NameOf(operand), rule,
                    StaticScaleOf(operand, rule.scaling.values));
}

scaling::TensorScaler* RoundingStyles::CurrentScaleOf(const std::string& layer,
                                                      const std::string& operand) const {
  const auto found = current_.find(layer + "." + operand);
  return found == current_.end() ? nullptr : found->second.host;
}

ExponentBins* RoundingStyles::FindOrMakeBins(const std::string& name) {
  SharedArray<ExponentBins>& bins = bins_[name];
  if (bins.count == 0) bins = bins_arena_.Add<ExponentBins>();
  return bins.backend;
}

const ExponentBins* RoundingStyles::BinsOf(const std::string& layer,
                                           const std::string& tensor) const {
  const auto found = bins_.find(layer + "." + tensor);
  return found == bins_.end() ? nullptr : found->second.host;
}

TensorScale* RoundingStyles::ScaleOf(const std::string& layer, const std::string& tensor) const {
  const auto found = scales_.find(layer + "." + tensor);
  return found == scales_.end() ? nullptr : found->second;
}

}  // namespace ada::graph
