// Texts for two readers: Text goes beside the CSV in lines that are as long as they need,
// PrintTable to a terminal, where lines are wrapped anew.
#include "study/what_if/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <sstream>
#include <string_view>

#include "io/shown_text.h"
#include "io/text.h"
#include "number/number_format.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kWorstTensors = 3, kMostRows = 15;

std::string Percent(double value) { return Formatted("%.3g %%", value); }
std::string ShortScale(double value) { return Formatted("%.4g", value); }

}  // namespace

void WhatIfSummary::Add(const telemetry::WhatIfRow& row, const Recorded& recorded) {
  if (steps_ == 0 || row.step != last_step_) ++steps_;
  if (steps_ == 1) first_step_ = row.step;
  last_step_ = row.step;
  judged_.insert(row.step);
  const std::string name = Visible(row.layer + "." + row.tensor);
  const auto [place, is_new] = index_.try_emplace(name, tensors_.size());
  if (is_new) tensors_.emplace_back().name = name;
  Tensor& tensor = tensors_[place->second];
  if (!std::isnan(row.underflow_pct_nonzero)) {
    tensor.pct_sum += row.underflow_pct_nonzero;
    tensor.pct_max = std::max(tensor.pct_max, row.underflow_pct_nonzero);
    tensor.unchanged_sum += recorded.pct;
    ++tensor.pct_rows;
  }
  tensor.not_finite_rows += recorded.not_finite;
  // Predicted counts are no whole numbers; less than half a value is none.
  if (row.overflow >= 0.5) {
    tensor.overflow += row.overflow;
    ++tensor.overflow_steps;
  }
  tensor.is_dx = row.tensor == "dx";
  tensor.scale_low = std::min(tensor.scale_low, row.scale);
  tensor.scale_high = std::max(tensor.scale_high, row.scale);
  // With such scales a threshold in the histogram is the edge of a bin, and only values on it are
  // unsure.
  powers_of_two_ = powers_of_two_ && IsPowerOfTwo(row.scale);
  overflow_unsure_ += row.overflow_unsure;
  if (row.underflow_unsure_pct > unsure_pct_) {
    unsure_pct_ = row.underflow_unsure_pct;
    unsure_at_ = name + " in step " + std::to_string(row.step);
  }
}

void WhatIfSummary::AddLogged(const telemetry::TensorRow& row) {
  const auto place = index_.find(Visible(row.layer + "." + row.tensor));
  const bool known = place != index_.end() && judged_.contains(row.step);
  if (!known || std::isnan(row.underflow_pct_nonzero)) return;
  Tensor& tensor = tensors_[place->second];
  tensor.logged_sum += row.underflow_pct_nonzero;
  ++tensor.logged_rows;
}

void WhatIfSummary::End(std::int64_t step, const std::string& reason) {
  end_ = "  the policy would have ended the run by step " + std::to_string(step) + ": " +
         Visible(reason) + "\n";
}

// By the mean over the steps; the worst step is told with it.
std::string WhatIfSummary::Worst() const {
  std::vector<const Tensor*> worst;
  for (const Tensor& tensor : tensors_)
    if (tensor.pct_sum > 0) worst.push_back(&tensor);
  if (worst.empty()) return "  nothing underflows\n";
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Tensor* a, const Tensor* b) { return a->pct_mean() > b->pct_mean(); });
  std::string text = "  most of its non-zero values would lose:\n";
  for (std::size_t i = 0; i < std::min(worst.size(), kWorstTensors); ++i)
    text += "    " + worst[i]->name + " " + Percent(worst[i]->pct_mean()) + " (at most " +
            Percent(worst[i]->pct_max) + " in a step)\n";
  return text;
}

// Tensors that overflow, and the one with the most values.
std::string WhatIfSummary::Overflows() const {
  std::int64_t tensors = 0;
  const Tensor* most = nullptr;
  for (const Tensor& tensor : tensors_) {
    if (tensor.overflow_steps == 0) continue;
    ++tensors;
    if (most == nullptr || tensor.overflow > most->overflow) most = &tensor;
  }
  if (most == nullptr) return "  nothing overflows\n";
  return "  " + Counted(tensors, "tensor") + " would overflow, most of all " + most->name +
         ": about " + std::to_string(std::llround(most->overflow)) + " values in " +
         Counted(most->overflow_steps, "step") + "\n";
}

// A bin of a histogram is a power of two wide: values in that of a threshold may lie on either
// side.
std::string WhatIfSummary::Uncertainty() const {
  if (unsure_pct_ == 0 && overflow_unsure_ == 0)
    return "  exact: no value shares an exponent with a threshold\n";
  std::string text;
  if (unsure_pct_ > 0)
    text += "  uncertainty: up to " + Percent(unsure_pct_) +
            " of a tensor's values share the threshold's exponent\n    (" + unsure_at_ + ")";
  if (unsure_pct_ > 0 && powers_of_two_)
    text +=
        "; of these only those equal to a power of two may\n    underflow: all scales are powers "
        "of two";
  if (unsure_pct_ > 0) text += "\n";
  if (overflow_unsure_ > 0)
    text += "  uncertainty: " + Counted(overflow_unsure_, "value") +
            " in all share the exponent above which values overflow\n";
  return text;
}

std::string WhatIfSummary::FirstLine() const {
  const std::string text = "what if " + scenario_ + ": ";
  if (steps_ == 0) return text + "no step was judged";
  return text + Counted(steps_, "step") + " (" + std::to_string(first_step_) + " to " +
         std::to_string(last_step_) + "), " +
         Counted(static_cast<std::int64_t>(tensors_.size()), "tensor");
}

std::string WhatIfSummary::Text() const {
  const std::string text = FirstLine() + "\n";
  return steps_ == 0 ? text + end_ : text + Worst() + Overflows() + Uncertainty() + end_;
}

// Those that lose anything. What overflows is worse than what underflows: its step is skipped.
std::vector<const WhatIfSummary::Tensor*> WhatIfSummary::WorstFirst() const {
  std::vector<const Tensor*> worst;
  for (const Tensor& tensor : tensors_)
    if (tensor.pct_sum > 0 || tensor.overflow_steps > 0) worst.push_back(&tensor);
  std::stable_sort(worst.begin(), worst.end(), [](const Tensor* a, const Tensor* b) {
    return std::pair(a->overflow, a->pct_mean()) > std::pair(b->overflow, b->pct_mean());
  });
  return worst;
}

// The mean over the gradients between layers: one number to tell scenarios apart.
std::string WhatIfSummary::DxLine() const {
  double sum = 0, was = 0;
  std::int64_t tensors = 0, more = 0, less = 0;
  for (const Tensor& tensor : tensors_) {
    if (!tensor.is_dx || (tensor.pct_rows == 0 && tensor.not_finite_rows > 0)) continue;
    ++tensors;
    sum += tensor.pct_mean();
    was += tensor.logged_mean();
    // Two predictions are compared, since a log has counts of rounding as it was.
    more += tensor.pct_sum > tensor.unchanged_sum;
    less += tensor.pct_sum < tensor.unchanged_sum;
  }
  if (tensors == 0) return "";
  const auto count = static_cast<double>(tensors);
  return "  of " + std::to_string(tensors) + " dx, " + std::to_string(more) + " would lose more, " +
         std::to_string(less) + " less than in the run; mean " + Percent(sum / count) + ", was " +
         Percent(was / count) + "\n";
}

// The rows end where a screen does. Tensors that lose nothing, or held only zeros, are counted
// below.
void WhatIfSummary::PrintRows(std::ostream& out) const {
  const std::vector<const Tensor*> worst = WorstFirst();
  TextTable table({"tensor", "lost %", "at most", "in the run", "overflow", "S"});
  for (std::size_t i = 0; i < std::min(worst.size(), kMostRows); ++i) {
    const Tensor& t = *worst[i];
    const std::string low = ShortScale(t.scale_low), high = ShortScale(t.scale_high);
    table.Row({t.name, PctText(t.pct_mean()), PctText(t.pct_max), PctText(t.logged_mean()),
               std::to_string(std::llround(t.overflow)), low == high ? low : low + " - " + high});
  }
  if (!worst.empty()) table.Print(out, kTerminalWidth);
  if (worst.size() > kMostRows)
    out << "  and " << worst.size() - kMostRows << " that lose less (--csv has all)\n";
  std::int64_t whole = 0, zero = 0, broken = 0;
  for (const Tensor& t : tensors_) {
    if (t.pct_sum > 0 || t.overflow_steps > 0) continue;  // they are in the table
    ++(t.pct_rows > 0 ? whole : t.not_finite_rows > 0 ? broken : zero);
  }
  const auto unknown = [&out](std::int64_t count, const char* held) {
    if (count > 0)
      out << "  " << Counted(count, "tensor") << " held " << held << ": nothing is known of "
          << (count == 1 ? "it\n" : "them\n");
  };
  if (whole > 0) out << "  " << Counted(whole, "tensor") << " would lose nothing\n";
  unknown(zero, "zeros alone");
  unknown(broken, "inf, NaN and zeros alone");
}

void WhatIfSummary::PrintTable(const std::string& note, std::ostream& out) const {
  PrintWrapped(FirstLine(), 2, out);
  std::string text = end_ + note;
  if (steps_ > 0) {
    PrintRows(out);
    text = Overflows() + Uncertainty() + text + DxLine();
  }
  constexpr std::string_view kGoesOn = "\n    ";  // a line that was broken at another width
  for (std::size_t at = text.find(kGoesOn); at != std::string::npos; at = text.find(kGoesOn, at))
    text.replace(at, kGoesOn.size(), " ");
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) PrintWrapped(line, 4, out);
}

}  // namespace ada::study
