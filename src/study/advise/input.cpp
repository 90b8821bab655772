// The network's input: images whose numbers its format does not have.
// This is asked first: where the images are lost, everything after them is an effect.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "config/load.h"
#include "io/text.h"
#include "study/advise/run_record.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

using config::NormalizeConfig;

constexpr double kMostLost = 50;  // percent

// "[0.5, 0.5, 0.5]".
std::string ForEachChannel(double value, int channels) {
  std::string list;
  for (int i = 0; i < channels; ++i) list += (i == 0 ? "" : ", ") + Formatted("%.4g", value);
  return "[" + list + "]";
}

// The value of data.normalize that makes mean 0 and deviation 1 of the images; empty: not known.
// What is measured was normalized with the numbers of the run.
std::string Normalization(const RunRecord& record) {
  const NormalizeConfig& now = record.config.data.normalize;
  const bool is_standard = now.kind == NormalizeConfig::Kind::kStandard;
  // Images with standard numbers are either normalized already, and then the format is at fault, or
  // not.
  if (config::HasStandardNormalization(record.config)) return is_standard ? "" : "standard";
  const TensorCourse* seen = record.course.Find("input", "y");
  if (now.kind == NormalizeConfig::Kind::kCustom || seen == nullptr || record.channels == 0)
    return "";
  if (!(seen->first_std > 0) || !std::isfinite(seen->first_mean)) return "";
  return "{mean: " + ForEachChannel(seen->first_mean, record.channels) +
         ", std: " + ForEachChannel(seen->first_std, record.channels) + "}";
}

// The layer that saw nothing but zeros in the first logged step: its dw was zero, and the gradient
// that it passed on was not, so that neither dy nor w were. Null: none, or weights that become zero
// where they are rounded explain it.
const telemetry::TensorTotals* SawZeros(const RunRecord& record) {
  if (WeightsVanish(record)) return nullptr;
  for (const telemetry::TensorTotals& t : record.layers.tensors()) {
    if (t.tensor != "dw") continue;
    const TensorCourse* dw = record.course.Find(t.layer, "dw");
    const TensorCourse* dx = record.course.Find(t.layer, "dx");
    if (dw != nullptr && dx != nullptr && dw->first_largest == 0 && dx->first_largest > 0)
      return &t;
  }
  return nullptr;
}

}  // namespace

bool WeightsVanish(const RunRecord& record) {
  const auto& tensors = record.layers.tensors();
  return std::any_of(tensors.begin(), tensors.end(), [](const telemetry::TensorTotals& t) {
    return t.tensor == "w" && t.lost_mean() >= kMostLost;
  });
}

std::optional<Advice> InputAdvice(const RunRecord& record) {
  const telemetry::Finiteness& finiteness = record.run.finiteness();
  const telemetry::TensorTotals* input = record.layers.FindTensor("input", "y");
  // The first tensor that was not finite is the input itself, before any layer computed anything.
  const bool overflows = finiteness.since() > 0 && finiteness.first().layer == "input";
  const bool vanishes = input != nullptr && input->pct_mean() >= kManyLost;
  const telemetry::TensorTotals* zeros = input == nullptr ? SawZeros(record) : nullptr;
  if (!overflows && !vanishes && zeros == nullptr) return std::nullopt;
  const config::PrecisionConfig& p = record.config.precision;
  const auto logged = record.formats.find({"input", "y"});
  const NumberFormat format =
      logged != record.formats.end() ? logged->second : p.activations.value_or(p.format);
  std::string reason;
  if (overflows)
    reason = "not finite from step " + std::to_string(finiteness.since()) +
             " on: the input (largest magnitude " +
             ShortNumber(std::strtod(finiteness.first().value.c_str(), nullptr)) + ") leaves " +
             FormatName(format) + " before the network";
  else if (zeros != nullptr)
    reason = zeros->layer + ".dw is zero in the first step and " + zeros->layer +
             ".dx is not, so that nothing but zeros reaches the layer: its input, most likely the "
             "images, becomes zero in " +
             FormatName(format) + " (log.statistics with y would tell)";
  else
    reason = PercentText(input->pct_mean()) + " of the input's values become zero in " +
             FormatName(format) + " before the network, and nothing after it mends that";
  const std::string normalization = Normalization(record);
  if (!normalization.empty()) {
    if (normalization != "standard") reason += "; mean and deviation of the first batch";
    return Advice{"data",
                  {{"normalize", normalization}},
                  reason,
                  zeros == nullptr ? "well" : "fairly",
                  {"input.y"}};
  }
  const std::optional<NumberFormat> wider = Wider(format);
  if (!wider) return std::nullopt;
  Advice advice = FormatAdvice(record.config, "input", "y", *wider);
  advice.reason = reason;
  return advice;
}

}  // namespace ada::study
