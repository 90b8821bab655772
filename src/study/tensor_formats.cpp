// underflow.csv names the format of each tensor in each step that was logged, but not what happens
// beyond its largest value, which the configuration tells.
#include <algorithm>

#include "config/load.h"
#include "core/error.h"
#include "core/tensor_names.h"
#include "scaling/policies/policy.h"
#include "study/run_files.h"

namespace ada::study {
namespace {

using config::OverflowKind;

// The formats that a configuration gives to tensors.
class WrittenFormats {
 public:
  explicit WrittenFormats(const config::PrecisionConfig& precision) {
    formats_.push_back(precision.format);
    AddPart(precision);
    for (const config::PrecisionSwitchConfig& part : precision.schedule) {
      Add(part.format);
      AddPart(part);
    }
  }
  // Whether a format of this name saturates wherever it is written.
  bool Saturates(const NumberFormat& named) const {
    bool any = false;
    for (NumberFormat format : formats_) {
      const bool saturates = format.saturate;
      format.saturate = named.saturate;
      if (format != named) continue;
      if (!saturates) return false;
      any = true;
    }
    return any;
  }

 private:
  void Add(const std::optional<NumberFormat>& format) {
    if (format) formats_.push_back(*format);
  }
  void AddRoles(const config::RoleFormatsConfig& roles) {
    for (const auto& format :
         {roles.activations, roles.weights, roles.gradients, roles.weight_gradients})
      Add(format);
  }
  void AddPart(const auto& part) {
    AddRoles(part);
    for (const config::LayerPrecisionConfig& layer : part.layers) {
      Add(layer.format);
      AddRoles(layer);
    }
  }

  std::vector<NumberFormat> formats_;
};

// Which of a run's tensors saturate, as graph/network/precision.h and tensor_storage.h decide it.
class Saturation {
 public:
  explicit Saturation(const config::Config& config)
      : overflow_(config.precision.overflow),
        scales_tensors_(config.precision.tensor_scaling.kind !=
                        config::TensorScalingConfig::Kind::kNone),
        policy_owns_gradients_(scaling::MakePolicy(config.scaling)->OwnsLayerScales()),
        written_(config.precision) {}

  bool scales_gradients() const { return scales_tensors_ && !policy_owns_gradients_; }
  bool Of(const NumberFormat& format, const std::string& tensor) const {
    if (format == kFp32) return false;
    const bool is_scaled =
        tensor != "dw" && (CarriesS(tensor) ? scales_gradients() : scales_tensors_);
    if (overflow_ == OverflowKind::kSaturate) return true;
    if (is_scaled && overflow_ == OverflowKind::kDefault) return true;
    return written_.Saturates(format);
  }

 private:
  OverflowKind overflow_;
  bool scales_tensors_, policy_owns_gradients_;
  WrittenFormats written_;
};

}  // namespace

void FormatHistory::Add(std::int64_t step, const std::string& layer, const std::string& tensor,
                        const NumberFormat& format) {
  std::vector<Since>& all = formats_[{layer, tensor}];
  if (all.empty() || all.back().format != format) all.push_back({step, format});
}

const NumberFormat* FormatHistory::At(std::int64_t step, const std::string& layer,
                                      const std::string& tensor) const {
  const auto found = formats_.find({layer, tensor});
  if (found == formats_.end()) return nullptr;
  const std::vector<Since>& all = found->second;
  auto at = std::upper_bound(all.begin(), all.end(), step,
                             [](std::int64_t now, const Since& since) { return now < since.step; });
  return at == all.begin() ? &at->format : &std::prev(at)->format;
}

TensorFormats FormatHistory::Last() const {
  TensorFormats last;
  for (const auto& [tensor, all] : formats_) last[tensor] = all.back().format;
  return last;
}

// The names are read once each, since a file has them thousands of times.
FormatHistory ReadFormatHistory(const std::string& folder, const config::Config& config) {
  const Saturation saturation(config);
  std::map<std::string, NumberFormat> by_name;
  FormatHistory history;
  history.scaled_gradients = saturation.scales_gradients();
  EachRow<TensorRow>(folder, [&](const TensorRow& row) {
    // Scenarios apply to stored tensors of a pass only.
    if (IsOperand(row.tensor) || IsOfUpdate(row.tensor)) return;
    const auto [found, is_new] = by_name.try_emplace(row.format);
    if (is_new) {
      try {
        found->second = config::ReadFormat(row.format);
      } catch (const ConfigError&) {
        throw DataError(folder + "/underflow.csv: step " + std::to_string(row.step) +
                        ": column format is '" + row.format +
                        "', expected one of `ada-train formats` or {exponent: .., mantissa: ..}");
      }
    }
    NumberFormat format = found->second;
    format.saturate = format.saturate || saturation.Of(format, row.tensor);
    history.Add(row.step, row.layer, row.tensor, format);
  });
  return history;
}

TensorFormats ReadTensorFormats(const std::string& folder, const config::Config& config) {
  return ReadFormatHistory(folder, config).Last();
}

}  // namespace ada::study
