// Looks a tensor's format up in the run's configuration.
#include "judge/stored_formats.h"

#include <algorithm>
#include <iterator>

#include "config/derived.h"
#include "config/load.h"
#include "graph/network/precision.h"
#include "io/tensor_names.h"
#include "scaling/policies/policy.h"

namespace ada::judge {
namespace {

using config::OverflowKind;

bool AnySaturates(const config::RoleFormatsConfig& roles) {
  const auto formats = {roles.activations, roles.weights, roles.gradients, roles.weight_gradients};
  return std::any_of(formats.begin(), formats.end(),
                     [](const auto& format) { return format && format->saturate; });
}

// Whether a part of the section `precision` writes a format that saturates, for whatever tensors.
bool AnySaturates(const std::optional<NumberFormat>& format, const auto& part) {
  return (format && format->saturate) || AnySaturates(part) ||
         std::any_of(part.layers.begin(), part.layers.end(), [](const auto& layer) {
           return (layer.format && layer.format->saturate) || AnySaturates(layer);
         });
}

const NumberFormat& FormatOf(const graph::LayerFormats& formats, const std::string& tensor) {
  if (tensor == "w") return formats.weights;
  if (tensor == "dw") return formats.weight_gradients;
  return IsGradient(tensor) ? formats.gradients : formats.activations;
}

// Whether the precision has such a rounding, in some part of its schedule at least.
template <class Is>
bool AnyRounding(const config::PrecisionConfig& precision, const Is& is) {
  return is(precision.rounding) ||
         std::any_of(precision.schedule.begin(), precision.schedule.end(),
                     [&](const auto& part) { return part.rounding && is(*part.rounding); });
}

}  // namespace

StoredFormats::StoredFormats(const config::Config& config)
    : precision_(config.precision),
      scales_tensors_(config.precision.tensor_scaling.kind !=
                      config::TensorScalingConfig::Kind::kNone),
      policy_owns_gradients_(scaling::MakePolicy(config.scaling)->OwnsLayerScales()) {
  bool any = AnySaturates(precision_.format, precision_);
  for (const config::PrecisionSwitchConfig& part : precision_.schedule)
    any = any || AnySaturates(part.format, part);
  if (!any) return;
  path_ = std::make_unique<ScalePath>(config.model);
  written_.push_back({0, config::PrecisionAt(precision_, 0)});
  for (const config::PrecisionSwitchConfig& part : precision_.schedule)
    written_.push_back({part.from_step, config::PrecisionAt(precision_, part.from_step)});
}

NumberFormat StoredFormats::Find(std::int64_t step, const std::string& layer,
                                 const std::string& tensor, const NumberFormat& named) {
  if (step != modes_step_) {
    modes_step_ = step;
    const config::PrecisionConfig now = config::PrecisionAt(precision_, step);
    modes_ = config::ModesOf(now.rounding, now.overflow, now.random_bits);
  }
  NumberFormat format = WithModes(named, modes_);
  format.saturate = Saturates(step, layer, tensor, format);
  return format;
}

bool StoredFormats::Saturates(std::int64_t step, const std::string& layer,
                              const std::string& tensor, const NumberFormat& format) const {
  if (format == kFp32) return false;
  const OverflowKind overflow = precision_.overflow;
  if (format.saturate || overflow == OverflowKind::kSaturate ||
      overflow == OverflowKind::kSaturateFinite)
    return true;
  const bool is_scaled =
      tensor != "dw" && (CarriesS(tensor) ? scales_gradients() : scales_tensors_);
  return (is_scaled && overflow == OverflowKind::kDefault) ||
         IsWritten(step, layer, tensor, format);
}

// A gradient has the format of the layer that made the value.
bool StoredFormats::IsWritten(std::int64_t step, const std::string& layer,
                              const std::string& tensor, const NumberFormat& format) const {
  if (written_.empty()) return false;
  const auto after = std::upper_bound(
      written_.begin(), written_.end(), step,
      [](std::int64_t now, const SincePrecision& since) { return now < since.from_step; });
  const std::string owner = CarriesS(tensor) ? path_->FormatOwner(layer, tensor) : layer;
  NumberFormat written = FormatOf(graph::FormatsOf(std::prev(after)->precision, owner), tensor);
  const bool saturates = written.saturate;
  written.saturate = format.saturate;
  return saturates && written == format;
}

bool RoundsStochastically(const config::PrecisionConfig& precision) {
  return AnyRounding(precision, config::IsStochastic);
}

bool RoundsBySign(const config::PrecisionConfig& precision) {
  return AnyRounding(precision, [](config::RoundingKind kind) {
    return kind == config::RoundingKind::kTowardPositive ||
           kind == config::RoundingKind::kTowardNegative;
  });
}

}  // namespace ada::judge
