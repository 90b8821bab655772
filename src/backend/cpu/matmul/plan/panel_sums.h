// The running sums of some rows with one panel of sixteen outputs, for products that an accumulator
// adds.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/accumulate_kernels.h"

namespace ada::backend::cpu {

// Products of a sum that are taken at once: whole groups.
inline std::int64_t StepOf(const scaling::Accumulator& rule) {
  constexpr std::int64_t kStep = 256;
  return rule.group * std::max<std::int64_t>(1, kStep / rule.group);
}

// One for each panel and pass through its sum.
class PanelSums {
 public:
  static std::size_t bytes(std::int64_t rows) {
    return static_cast<std::size_t>(rows * kPanel) * (2 * sizeof(float) + 2 * sizeof(double));
  }
  // blocks: codes are added block by block (EndBlock), and nothing is promoted in between.
  PanelSums(const scaling::Accumulator& rule, std::byte* memory, std::int64_t rows, bool counts,
            bool blocks)
      : rule_(rule), rows_(rows), counts_(counts), blocks_(blocks) {
    if (blocks) rule_.promote = 0;
    const std::int64_t values = rows * kPanel;
    part_ = reinterpret_cast<float*>(memory), main_ = part_ + values;
    exact_ = reinterpret_cast<double*>(main_ + values), magnitudes_ = exact_ + values;
  }
  void Begin() {
    const std::int64_t values = rows_ * kPanel;
    std::fill_n(part_, 2 * values, 0.0f);
    if (counts_) std::fill_n(exact_, 2 * values, 0.0);
    if (counts_ && blocks_) totals_.assign(static_cast<std::size_t>(2 * values), 0.0);
    found_ = scaling::AccumulatorCounts();
  }
  // main = fma(part, scale_of(row, lane), main), for all sums.
  template <class Scale>
  void EndBlock(Scale&& scale_of) {
    for (std::int64_t i = 0; i < rows_ * kPanel; ++i) {
      const float scale = scale_of(i / kPanel, i % kPanel);
      main_[i] = std::fma(part_[i], scale, main_[i]);
      part_[i] = 0;
      if (!counts_) continue;
      const auto at = static_cast<std::size_t>(2 * i);
      totals_[at] += exact_[i] * static_cast<double>(scale);
      totals_[at + 1] += magnitudes_[i] * std::abs(static_cast<double>(scale));
      exact_[i] = magnitudes_[i] = 0;
    }
  }
  // The arguments but for the matrices.
  AccumulateArgs Args(std::int64_t first, std::int64_t k, bool vectors) {
    AccumulateArgs args;
    args.rule = rule_, args.rows = rows_, args.k = k, args.first = first, args.vectors = vectors;
    args.part = part_, args.main = main_;
    if (counts_) args.exact = exact_, args.magnitudes = magnitudes_, args.counts = &found_;
    return args;
  }
  // take(row, lane, sum) for the first `lanes` of each row. factor(row, lane): of scales that whole
  // sums have.
  template <class Factor, class Take>
  void End(std::int64_t lanes, scaling::AccumulatorCounts* counts, Factor&& factor, Take&& take) {
    for (std::int64_t row = 0; row < rows_; ++row) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t i = row * kPanel + lane;
        const float by = factor(row, lane);
        const float sum = by * (blocks_             ? main_[i]
                                : rule_.promote > 0 ? main_[i] + part_[i]
                                                    : part_[i]);
        const auto at = static_cast<std::size_t>(2 * i);
        const auto wide = static_cast<double>(by);
        if (counts_ && blocks_)
          found_.Take(sum, totals_[at], totals_[at + 1]);
        else if (counts_)
          found_.Take(sum, exact_[i] * wide, magnitudes_[i] * std::abs(wide));
        take(row, lane, sum);
      }
    }
    if (counts_) counts->Add(found_);
  }

 private:
  scaling::Accumulator rule_;
  std::int64_t rows_;
  bool counts_, blocks_;
  std::vector<double> totals_;  // with the scales of blocks: exact sums, and of magnitudes
  double *exact_, *magnitudes_;
  float *part_, *main_;
  scaling::AccumulatorCounts found_;
};

}  // namespace ada::backend::cpu
