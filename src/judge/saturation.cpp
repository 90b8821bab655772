// Looks a tensor's format up in the run's configuration, which says whether it saturates.
#include "judge/saturation.h"

#include <algorithm>
#include <iterator>

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

}  // namespace

Saturation::Saturation(const config::Config& config)
    : overflow_(config.precision.overflow),
      scales_tensors_(config.precision.tensor_scaling.kind !=
                      config::TensorScalingConfig::Kind::kNone),
      policy_owns_gradients_(scaling::MakePolicy(config.scaling)->OwnsLayerScales()) {
  const config::PrecisionConfig& precision = config.precision;
  bool any = AnySaturates(precision.format, precision);
  for (const config::PrecisionSwitchConfig& part : precision.schedule)
    any = any || AnySaturates(part.format, part);
  if (!any) return;
  path_ = std::make_unique<ScalePath>(config.model);
  parts_.push_back({0, config::PrecisionAt(precision, 0)});
  for (const config::PrecisionSwitchConfig& part : precision.schedule)
    parts_.push_back({part.from_step, config::PrecisionAt(precision, part.from_step)});
}

bool Saturation::Of(std::int64_t step, const std::string& layer, const std::string& tensor,
                    const NumberFormat& format) const {
  if (format == kFp32) return false;
  if (format.saturate || overflow_ == OverflowKind::kSaturate ||
      overflow_ == OverflowKind::kSaturateFinite)
    return true;
  const bool is_scaled =
      tensor != "dw" && (CarriesS(tensor) ? scales_gradients() : scales_tensors_);
  return (is_scaled && overflow_ == OverflowKind::kDefault) ||
         IsWritten(step, layer, tensor, format);
}

// A gradient has the format of the layer that made the value.
bool Saturation::IsWritten(std::int64_t step, const std::string& layer, const std::string& tensor,
                           const NumberFormat& format) const {
  if (parts_.empty()) return false;
  const auto after =
      std::upper_bound(parts_.begin(), parts_.end(), step,
                       [](std::int64_t now, const Part& part) { return now < part.from_step; });
  const bool is_passed = CarriesS(tensor);
  const std::string owner = is_passed ? path_->FormatOwner(layer, tensor) : layer;
  NumberFormat written = FormatOf(graph::FormatsOf(std::prev(after)->precision, owner), tensor);
  const bool saturates = written.saturate;
  written.saturate = format.saturate;
  return saturates && written == format;
}

}  // namespace ada::judge
