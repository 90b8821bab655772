// What each tensor of a run asks of a scale and a format: from histograms how small its values get,
// from the counts of all logged steps how large.
#include <algorithm>
#include <cmath>
#include <map>

#include "judge/scenario.h"
#include "number/stats.h"
#include "study/advise/recommendation.h"
#include "study/run_files.h"
#include "study/run_histograms.h"

namespace ada::study {

namespace {

constexpr double kMostRange = 1000;  // powers of two; fp32's values have less than 300

// Add for each step with histograms, then for each row of underflow.csv, then Finish. The order
// matters: rows of tensors without a histogram are left out.
class Collector {
 public:
  Collector(RunNeeds& needs, const FormatHistory& formats, double target)
      : needs_(needs), formats_(formats), last_formats_(formats.Last()), target_(target) {}

  void Add(const HistogramStep& step) {
    if (needs_.steps++ == 0) {
      needs_.first_step = step.step;
      needs_.first_epoch = step.epoch;
    }
    needs_.last_step = step.step;
    needs_.last_epoch = std::max(needs_.last_epoch, step.epoch);
    for (const judge::HistogramOfTensor& t : step.tensors) {
      TensorNeeds& tensor = Tensor(t);
      tensor.scale = t.scale;
      // In its first step a per-tensor scale is 1, as if there were none.
      if (t.per_tensor_scale != 1) tensor.scaled_by_itself = true;
      // After an overflow a gradient shows what it left over and not what the network needs.
      if (t.bins->inf + t.bins->nan > 0) {
        ++needs_.left_out;
        continue;
      }
      if (const double lost = judge::LostAt(*t.bins, t.format, t.scale).underflow_pct();
          lost > tensor.binned_lost_pct)
        tensor.binned_lost_pct = lost;
      tensor.lost_magnitude_pct =
          std::max(tensor.lost_magnitude_pct, judge::LostMagnitudePct(*t.bins, t.format, t.scale));
      const double allowed = target_ * static_cast<double>(t.bins->nonzero());
      // The step that asks for most decides: its smallest values that must stay.
      tensor.keep = std::min(tensor.keep,
                             judge::LowestKept(*t.bins, allowed).value_or(TensorNeeds::kNothing));
      tops_[t.layer + "." + t.tensor] =
          std::max(tops_[t.layer + "." + t.tensor], judge::TopExponent(*t.bins));
    }
  }

  void Add(const TensorRow& row) {
    const auto found = index_.find(row.layer + "." + row.tensor);
    if (found == index_.end()) return;  // no histogram
    TensorNeeds& tensor = needs_.tensors[found->second];
    if (std::isfinite(row.max_abs)) tensor.largest = std::max(tensor.largest, row.max_abs);
    // A comparison with NaN is false, so a row without a range changes nothing.
    if (const double range = row.range_log2.value_or(NAN); range < kMostRange)
      tensor.range_log2 = std::max(tensor.range_log2, range);
    const NumberFormat* format = formats_.At(row.step, row.layer, row.tensor);
    if (format == nullptr || *format != tensor.format) return;
    tensor.overflow += row.overflow;
    tensor.scale_low = tensor.scale_low == 0 ? row.scale : std::min(tensor.scale_low, row.scale);
    tensor.scale_high = std::max(tensor.scale_high, row.scale);
    const bool broken = row.inf + row.nan > 0;
    tensor.broken_steps += broken;
    if (!broken && row.underflow_pct_nonzero > tensor.lost_pct) {
      tensor.lost_pct = row.underflow_pct_nonzero;
      tensor.lost_step = row.step;
    }
  }

  // If the counts have no largest value (all rows were infinite), uses the histogram's end.
  void Finish() {
    for (TensorNeeds& tensor : needs_.tensors)
      if (tensor.largest == 0 && tensor.keep != TensorNeeds::kNothing)
        tensor.largest = std::ldexp(1.0, tops_.at(tensor.name()) + 1);
  }

 private:
  TensorNeeds& Tensor(const judge::HistogramOfTensor& t) {
    const auto [found, is_new] = index_.try_emplace(t.layer + "." + t.tensor, index_.size());
    if (is_new) {
      TensorNeeds& tensor = needs_.tensors.emplace_back();
      tensor.layer = t.layer;
      tensor.tensor = t.tensor;
      tensor.format = last_formats_.at({t.layer, t.tensor});
      tensor.stochastic = formats_.stochastic;
      tops_[tensor.name()] = ExponentBins::kLowest;
    }
    return needs_.tensors[found->second];
  }

  RunNeeds& needs_;
  const FormatHistory& formats_;
  const TensorFormats last_formats_;
  double target_;
  std::map<std::string, std::size_t> index_;
  std::map<std::string, int> tops_;
};

}  // namespace

Powers PowersFor(const TensorNeeds& needs, const NumberFormat& format, double headroom_bits) {
  if (needs.silent()) return {};
  return judge::PowersFor(RoundedLike(format, needs.format),
                          {needs.keep, needs.largest, needs.stochastic}, headroom_bits);
}

bool MuchWasLost(const RunNeeds& needs) {
  constexpr double kMuch = 10;  // percent of the non-zero values in some step
  return std::any_of(needs.tensors.begin(), needs.tensors.end(),
                     [](const TensorNeeds& t) { return t.carries_s() && t.lost_pct > kMuch; });
}

RunNeeds CollectNeeds(const std::string& folder, const FormatHistory& formats,
                      double underflow_target) {
  RunNeeds needs;
  Collector collector(needs, formats, underflow_target);
  EachHistogramStep(folder, formats, [&](const HistogramStep& step) { collector.Add(step); });
  EachRow<TensorRow>(folder, [&](const TensorRow& row) { collector.Add(row); });
  collector.Finish();
  return needs;
}

std::vector<Predicted> PredictLosses(const std::string& folder, const FormatHistory& formats,
                                     const TensorFormats& changed, const RunNeeds& needs,
                                     const config::WhatIfConfig& choice,
                                     const config::ModelConfig& model) {
  std::map<std::string, std::size_t> index;
  std::vector<Predicted> result;
  for (const TensorNeeds& tensor : needs.tensors) {
    index[tensor.name()] = result.size();
    result.emplace_back().tensor = tensor.name();
  }
  judge::Scenario scenario(choice, model);
  EachHistogramStep(folder, formats, [&](const HistogramStep& step) {
    std::vector<judge::HistogramOfTensor> tensors = step.tensors;
    for (judge::HistogramOfTensor& t : tensors)
      if (const auto format = changed.find({t.layer, t.tensor}); format != changed.end())
        t.format = RoundedLike(format->second, t.format);
    const auto rows = scenario.Judge(step.step, step.epoch, tensors);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const telemetry::WhatIfRow& row = rows[i];
      if (step.tensors[i].bins->inf + step.tensors[i].bins->nan > 0)
        continue;  // as in CollectNeeds
      Predicted& tensor = result[index.at(row.layer + "." + row.tensor)];
      const bool first = tensor.scale_low == 0;
      tensor.scale_low = first ? row.scale : std::min(tensor.scale_low, row.scale);
      tensor.scale_high = std::max(tensor.scale_high, row.scale);
      tensor.overflow += row.overflow;
      if (std::isnan(row.underflow_pct_nonzero)) continue;
      tensor.lost_pct = std::max(tensor.lost_pct, row.underflow_pct_nonzero);
      tensor.unsure_pct = std::max(tensor.unsure_pct, row.underflow_unsure_pct);
    }
  });
  return result;
}

}  // namespace ada::study
