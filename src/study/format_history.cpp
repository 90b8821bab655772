// underflow.csv names the format of each tensor in each step that was logged, but not by which mode
// it is rounded and what happens beyond its largest value, which the configuration tells.
#include <algorithm>

#include "config/derived.h"
#include "config/load.h"
#include "io/tensor_names.h"
#include "judge/saturation.h"
#include "number/table_grid.h"
#include "study/run_files.h"

namespace ada::study {

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

bool RoundsStochastically(const config::PrecisionConfig& precision) {
  return config::IsStochastic(precision.rounding) ||
         std::any_of(precision.schedule.begin(), precision.schedule.end(), [](const auto& change) {
           return change.rounding && config::IsStochastic(*change.rounding);
         });
}

namespace {

// By which modes a step's stored tensors are rounded, which names of formats do not say; steps
// rise.
class StoredModes {
 public:
  explicit StoredModes(const config::PrecisionConfig& precision) : precision_(precision) {}
  const TableModes& At(std::int64_t step) {
    if (step == step_) return modes_;
    step_ = step;
    const config::PrecisionConfig now = config::PrecisionAt(precision_, step);
    modes_ = config::ModesOf(now.rounding, now.overflow, now.random_bits);
    return modes_;
  }

 private:
  const config::PrecisionConfig& precision_;
  std::int64_t step_ = -1;
  TableModes modes_;
};

}  // namespace

// The names are read once each, since a file has them thousands of times.
FormatHistory ReadFormatHistory(const std::string& folder, const config::Config& config) {
  const judge::Saturation saturation(config);
  StoredModes modes(config.precision);
  std::map<std::string, NumberFormat> by_name;
  FormatHistory history;
  history.scaled_gradients = saturation.scales_gradients();
  history.stochastic = RoundsStochastically(config.precision);
  EachRow<TensorRow>(folder, [&](const TensorRow& row) {
    // Scenarios apply to stored tensors of a pass only.
    if (IsOperand(row.tensor) || IsOfUpdate(row.tensor)) return;
    const auto [found, is_new] = by_name.try_emplace(row.format);
    if (is_new)
      found->second = FormatOfRow(folder, row.kFile, row.step, row.format,
                                  [](const std::string& name) { return config::ReadFormat(name); });
    NumberFormat format = WithModes(found->second, modes.At(row.step));
    format.saturate = saturation.Of(row.step, row.layer, row.tensor, format);
    history.Add(row.step, row.layer, row.tensor, format);
  });
  return history;
}

}  // namespace ada::study
