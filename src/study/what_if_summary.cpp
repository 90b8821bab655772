#include "study/what_if_summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "core/text.h"
#include "core/utf8.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr std::size_t kWorst = 3;

std::string Percent(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g %%", value);
  return text;
}
bool IsPowerOfTwo(double value) {
  int exponent = 0;
  return std::frexp(value, &exponent) == 0.5;
}

}  // namespace

void WhatIfSummary::Add(const telemetry::WhatIfRow& row) {
  if (steps_ == 0 || row.step != last_step_) ++steps_;
  if (steps_ == 1) first_step_ = row.step;
  last_step_ = row.step;
  const std::string name = Visible(row.layer + "." + row.tensor);
  const auto [place, is_new] = index_.try_emplace(name, tensors_.size());
  if (is_new) tensors_.emplace_back().name = name;
  Tensor& tensor = tensors_[place->second];
  if (!std::isnan(row.underflow_pct_nonzero)) {
    tensor.pct_sum += row.underflow_pct_nonzero;
    tensor.pct_max = std::max(tensor.pct_max, row.underflow_pct_nonzero);
    ++tensor.pct_rows;
  }
  if (row.overflow >= 0.5) {
    tensor.overflow += row.overflow;
    ++tensor.overflow_steps;
  }
  powers_of_two_ = powers_of_two_ && IsPowerOfTwo(row.scale);
  if (row.underflow_unsure_pct > unsure_pct_) {
    unsure_pct_ = row.underflow_unsure_pct;
    unsure_at_ = name + " in step " + std::to_string(row.step);
  }
}

void WhatIfSummary::End(std::int64_t step, const std::string& reason) {
  end_ = "  the policy would have ended the run by step " + std::to_string(step) + ": " +
         Visible(reason) + "\n";
}

std::string WhatIfSummary::Worst() const {
  std::vector<const Tensor*> worst;
  for (const Tensor& tensor : tensors_)
    if (tensor.pct_sum > 0) worst.push_back(&tensor);
  if (worst.empty()) return "  nothing underflows\n";
  std::stable_sort(worst.begin(), worst.end(),
                   [](const Tensor* a, const Tensor* b) { return a->pct_mean() > b->pct_mean(); });
  std::string text = "  most of its non-zero values would lose:\n";
  for (std::size_t i = 0; i < std::min(worst.size(), kWorst); ++i)
    text += "    " + worst[i]->name + " " + Percent(worst[i]->pct_mean()) + " (at most " +
            Percent(worst[i]->pct_max) + " in a step)\n";
  return text;
}

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

std::string WhatIfSummary::Uncertainty() const {
  if (unsure_pct_ == 0) return "  exact: no value shares an exponent with a threshold\n";
  std::string text = "  uncertainty: up to " + Percent(unsure_pct_) +
                     " of a tensor's values share the threshold's exponent\n    (" + unsure_at_ +
                     ")";
  if (powers_of_two_)
    text +=
        "; of these only those equal to a power of two may\n    underflow: all scales are powers "
        "of two";
  return text + "\n";
}

std::string WhatIfSummary::Text() const {
  std::string text = "what if " + scenario_ + ": ";
  if (steps_ == 0) return text + "no step was judged\n" + end_;
  text += Counted(steps_, "step") + " (" + std::to_string(first_step_) + " to " +
          std::to_string(last_step_) + "), " +
          Counted(static_cast<std::int64_t>(tensors_.size()), "tensor") + "\n";
  return text + Worst() + Overflows() + Uncertainty() + end_;
}

}  // namespace ada::study
