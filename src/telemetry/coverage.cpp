// Counts which tensors a run has logged, and makes the sentence of what they lost.
#include "telemetry/coverage.h"

#include <algorithm>

#include "io/tensor_names.h"
#include "io/text.h"

namespace ada::telemetry {
namespace {

// "a, b and c".
std::string Enumerated(const std::vector<std::string>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 < words.size() ? ", " : " and ") + words[i];
  return text;
}

}  // namespace

bool IsOfChanges(std::string_view tensor) {
  return WholeTensor(tensor) == "update" || tensor == "accumulated";
}

std::string Coverage::Text() const {
  std::string text =
      Enumerated(counted) + ", " + std::to_string(logged_steps) + " of " + Counted(steps, "step");
  if (!uncounted.empty()) text += "; not counted: " + Enumerated(uncounted) + " (log.statistics)";
  return text;
}

Coverage CoverageOf(const LayerTotals& layers, std::int64_t steps,
                    const std::vector<std::string>& uncounted) {
  Coverage coverage;
  coverage.steps = steps;
  coverage.uncounted = uncounted;
  for (const TensorTotals& tensor : layers.tensors()) {
    const std::string word(StatisticOf(tensor.tensor));
    if (IsOfChanges(tensor.tensor) || word == "orthogonality") continue;
    if (!Contains(coverage.counted, word)) coverage.counted.push_back(word);
    coverage.logged_steps = std::max(coverage.logged_steps, tensor.rows);
  }
  // In the order of the pass backwards, then forwards, then what is made of them.
  const std::vector<std::string> order = {"dx", "dy", "dw", "y", "w", "operands"};
  const auto place = [&](const std::string& word) {
    return std::find(order.begin(), order.end(), word) - order.begin();
  };
  std::stable_sort(coverage.counted.begin(), coverage.counted.end(),
                   [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
  return coverage;
}

const TensorTotals* LostMost(const LayerTotals& layers) {
  return WorstTensor(layers, &TensorTotals::lost_mean, [](const TensorTotals& tensor) {
    return !IsOfChanges(tensor.tensor) && tensor.lost_mean() > 0;
  });
}

std::string LostShares(const TensorTotals& tensor) {
  return Formatted("%.3f %% on the mean, %.3f %% at most", tensor.lost_mean(), tensor.lost_max);
}

std::string LostText(const LayerTotals& layers, const Coverage& coverage) {
  if (coverage.counted.empty())
    return "what tensors lose was not counted (log.every, log.statistics)";
  const TensorTotals* most = LostMost(layers);
  if (most != nullptr)
    return most->name() + " lost most, " + LostShares(*most) + ", of " + coverage.Text();
  const auto broken = std::count_if(layers.tensors().begin(), layers.tensors().end(),
                                    [](const TensorTotals& t) { return t.broken_rows > 0; });
  return "no value was lost of " + coverage.Text() +
         (broken == 0 ? "" : "; " + Counted(broken, "tensor") + " held inf or NaN");
}

}  // namespace ada::telemetry
