// The last line of compare: the metric, what gradients lost, and where the runs part.
#include <cmath>
#include <optional>

#include "io/shown_text.h"
#include "io/text.h"
#include "study/compare/comparison.h"
#include "study/text_table.h"
#include "telemetry/progress_text.h"

namespace ada::study {
namespace {

// The split that both were evaluated on: the test images where they were.
std::optional<std::string> CommonSplit(const RunResults& a, const RunResults& b) {
  std::optional<std::string> common;
  for (const auto& of_a : a.totals.evaluations())
    for (const auto& of_b : b.totals.evaluations())
      if (of_a.last.split == of_b.last.split && (!common || of_a.last.split == "test"))
        common = of_a.last.split;
  return common;
}

// The metric by which a run is judged on a split: its name and its value.
struct Judged {
  std::string name, text;
};
Judged JudgedBy(const RunResults& run, const std::string& split) {
  for (const auto& evaluation : run.totals.evaluations()) {
    if (evaluation.last.split != split) continue;
    const double loss = evaluation.last.loss;
    if (run.language)
      return {"loss", Formatted("%.4g nats, perplexity %.4g", loss, telemetry::Perplexity(loss))};
    const telemetry::Metric metric =
        evaluation.decided_by_classes()
            ? telemetry::MetricsOf(*evaluation.last_all).front()
            : telemetry::Metric{.key = "", .name = "top-1", .value = evaluation.last.top1};
    return {metric.name, Formatted("%.2f %%", 100 * metric.value)};
  }
  return {};
}

// "1.500 % (A)": the mean over the layers with values other than zero, and how many have none;
// empty if no layer was logged.
std::string LostText(const std::vector<LayerRecord>& layers, const char* run) {
  double sum = 0;
  std::int64_t count = 0, silent = 0;
  for (const LayerRecord& layer : layers) {
    if (std::isnan(layer.mean_pct)) {
      ++silent;
      continue;
    }
    sum += layer.mean_pct;
    ++count;
  }
  if (count + silent == 0) return "";
  std::string text = count == 0 ? "-" : PctText(sum / static_cast<double>(count)) + " %";
  text += std::string(" (") + run;
  if (silent > 0) text += "; no gradient in " + Counted(silent, "layer");
  return text + ")";
}

}  // namespace

std::string InShort(const RunResults& a, const RunResults& b,
                    const std::vector<LayerRecord>& layers_a,
                    const std::vector<LayerRecord>& layers_b, const std::string& parting) {
  std::string text = "in short: ";
  // Runs that were judged by different metrics (of different tasks) each name theirs.
  if (const auto split = CommonSplit(a, b)) {
    const Judged of_a = JudgedBy(a, *split), of_b = JudgedBy(b, *split);
    text += Visible(*split) + " " + of_a.name + " " + of_a.text + " (A), " +
            (of_b.name == of_a.name ? "" : of_b.name + " ") + of_b.text + " (B); ";
  } else if (a.totals.steps() > 0 && b.totals.steps() > 0) {
    text += "training loss " + Formatted("%.4g", a.totals.epoch_loss()) + " (A), " +
            Formatted("%.4g", b.totals.epoch_loss()) + " (B); ";
  }
  const std::string lost_a = LostText(layers_a, "A"), lost_b = LostText(layers_b, "B");
  if (!lost_a.empty() && !lost_b.empty())
    text += "lost of dx, mean of the layers, " + lost_a + ", " + lost_b + "; ";
  return text + parting;
}

}  // namespace ada::study
