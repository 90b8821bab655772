// Decisions are made by scaling/rules, through the policy that training makes, for each method in
// turn; nothing of the rules is repeated here.
#include <cmath>

#include "io/text.h"
#include "scaling/policies/policies.h"
#include "study/inspect/inspected.h"

namespace ada::study {
namespace {

using scaling::DecisionError;
using scaling::LayerMethod;

bool HasScale(const config::AdaptiveOverrides& adaptive, const std::string& layer) {
  bool found = adaptive.has_scale;
  for (const scaling::LayerSettings& entry : adaptive.scaling.layers)
    found = found || (entry.scale && GlobMatch(entry.match, layer));
  return found;
}

// A method that the overrides name is shown alone for its layers; else all that can be computed.
bool IsMethodShown(LayerMethod method, const FileLayer& layer,
                   const config::AdaptiveOverrides& adaptive) {
  if (method == LayerMethod::kExactRange && layer.dx == nullptr) return false;
  if (adaptive.has_method)
    return method == scaling::AdaptiveOf(adaptive.scaling, layer.name).method;
  return method != LayerMethod::kFixed || HasScale(adaptive, layer.name);
}

// The state is that of a layer before its first pass: cached values of an update_interval do not
// exist.
scaling::LayerScaler ScalerOf(LayerMethod method, const FileLayer& layer,
                              const scaling::Settings& config, const NumberFormat& format) {
  const auto lookup = [&](const std::string& name) {
    scaling::AdaptiveSettings settings = scaling::AdaptiveOf(config, name);
    settings.method = method;
    return settings;
  };
  scaling::LayerInfo info;
  info.name = layer.name;
  info.fan_reference = layer.fan_reference;
  info.fan_exact = layer.fan_exact;
  info.u_min = format.smallest_subnormal();
  info.u_max = format.largest();
  info.has_weight = layer.w != nullptr;
  info.fp16_gradients = layer.w != nullptr && layer.dy->dtype == DType::kF16;
  scaling::LayerScaler scaler;
  scaler.rule = scaling::MakeAdaptive(1, lookup)->RuleFor(info);
  return scaler;
}

// exact_range looks back: a first pass, whose dx the file has, comes before the one that decides.
void DecideFromDx(const SafetensorsFile& file, const FileLayer& layer,
                  const scaling::Observation& seen, float scale_in, scaling::LayerScaler& scaler) {
  Decide(scaler, seen, scale_in);
  const scaling::ExponentTail tail = TailOf(file, layer);
  if (!std::isfinite(tail.largest)) {  // a run skips such a step
    scaler.decision = {};
    scaler.decision.scale_in = scaler.decision.scale_out = scale_in;
    scaler.decision.limit = scaling::Limit::kNonfinite;
    return;
  }
  ObserveTail(scaler, tail);
  Decide(scaler, seen, scale_in);
}

std::optional<double> IfTaken(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

}  // namespace

// Statistics are taken once; each method decides from them with a scaler of its own.
std::vector<MethodScale> ScalesOf(const SafetensorsFile& file, const FileLayer& layer,
                                  const config::AdaptiveOverrides& adaptive,
                                  const NumberFormat& format, float scale_in) {
  const scaling::Observation seen = Observe(file, layer, format);
  std::vector<MethodScale> scales;
  for (const LayerMethod method : scaling::kAdaptiveMethods) {
    if (!IsMethodShown(method, layer, adaptive)) continue;
    scaling::LayerScaler scaler = ScalerOf(method, layer, adaptive.scaling, format);
    if (method == LayerMethod::kExactRange)
      DecideFromDx(file, layer, seen, scale_in, scaler);
    else
      Decide(scaler, seen, scale_in);
    // Only the authors' program goes on with a NaN; ours leaves the stage empty.
    const bool nan =
        scaler.decision.error == DecisionError::kNonfinite && std::isnan(scaler.state.unbound);
    scales.push_back({MethodName(method), scaler.rule.fan, scaler.decision, nan});
  }
  return scales;
}

MethodRow MethodRowOf(const std::string& layer, const MethodScale& scale) {
  const scaling::ScaleDecision& d = scale.decision;
  MethodRow row;
  row.layer = layer, row.method = scale.method, row.fan = scale.fan, row.scale_in = d.scale_in;
  row.unbound = scale.nan_unbound ? std::optional<double>(NAN) : IfTaken(d.unbound);
  row.bound = IfTaken(d.bound), row.pow2 = IfTaken(d.pow2);
  row.alpha = IfTaken(static_cast<double>(d.alpha));
  row.scale_out = IfTaken(static_cast<double>(d.scale_out));
  if (d.error != DecisionError::kNone) row.error = DecisionErrorText(d.error);
  if (row.alpha) row.limit = LimitName(d.limit);
  return row;
}

}  // namespace ada::study
