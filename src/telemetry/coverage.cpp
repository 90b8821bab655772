// Counts which tensors a run has logged, and makes the sentence of what they lost.
#include "telemetry/coverage.h"

#include <algorithm>
#include <utility>

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
  std::string text;
  std::vector<bool> told(counted.size());
  for (std::size_t i = 0; i < counted.size(); ++i) {
    if (told[i]) continue;
    std::vector<std::string> words;
    for (std::size_t j = i; j < counted.size(); ++j) {
      if (counted_steps[j] != counted_steps[i]) continue;
      words.push_back(counted[j]);
      told[j] = true;
    }
    text += (i == 0 ? "" : "; ") + Enumerated(words) + ", " + std::to_string(counted_steps[i]) +
            " of " + Counted(steps, "step");
  }
  if (!uncounted.empty()) text += "; not counted: " + Enumerated(uncounted) + " (log.statistics)";
  return text;
}

Coverage CoverageOf(const LayerTotals& layers, std::int64_t steps,
                    const std::vector<std::string>& uncounted) {
  // In the order of the pass backwards, then forwards, then what is made of them.
  const std::vector<std::string> order = {"dx", "dy", "dw", "y", "w", "operands"};
  const auto place = [&](const std::string& word) {
    return std::find(order.begin(), order.end(), word) - order.begin();
  };
  std::vector<std::pair<std::string, std::int64_t>> counted;  // and their steps
  Coverage coverage;
  coverage.steps = steps;
  for (const TensorTotals& tensor : layers.tensors()) {
    const std::string word(StatisticOf(tensor.tensor));
    coverage.steps = std::max(coverage.steps, tensor.last_step);
    if (IsOfChanges(tensor.tensor) || word == "orthogonality") continue;
    auto found = std::find_if(counted.begin(), counted.end(),
                              [&](const auto& each) { return each.first == word; });
    if (found == counted.end()) found = counted.insert(counted.end(), {word, 0});
    found->second = std::max(found->second, tensor.rows);
    coverage.logged_steps = std::max(coverage.logged_steps, tensor.rows);
  }
  std::stable_sort(counted.begin(), counted.end(),
                   [&](const auto& a, const auto& b) { return place(a.first) < place(b.first); });
  for (auto& [word, rows] : counted) {
    coverage.counted.push_back(word);
    coverage.counted_steps.push_back(rows);
  }
  for (const std::string& word : uncounted)
    if (!Contains(coverage.counted, word)) coverage.uncounted.push_back(word);
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
  const TensorTotals* still = WorstTensor(layers, &TensorTotals::lost_mean, [](const auto& tensor) {
    return IsOfChanges(tensor.tensor) && tensor.lost_mean() > 0;
  });
  const std::string changes = still == nullptr ? ""
                                               : "; changes that left " + still->name() +
                                                     " where it was: " + LostShares(*still);
  if (coverage.counted.empty())
    return "what tensors lose was not counted (log.every, log.statistics)" + changes;
  const TensorTotals* most = LostMost(layers);
  if (most != nullptr)
    return most->name() + " lost most, " + LostShares(*most) + ", of " + coverage.Text() + changes;
  const auto broken = std::count_if(layers.tensors().begin(), layers.tensors().end(),
                                    [](const TensorTotals& t) { return t.broken_rows > 0; });
  return "no value was lost of " + coverage.Text() +
         (broken == 0 ? "" : "; " + Counted(broken, "tensor") + " held inf or NaN") + changes;
}

}  // namespace ada::telemetry
