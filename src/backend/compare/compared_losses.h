// What the losses on two backends share: targets, results, and the bounds of a gradient whose
// probability comes from logarithms in double: the fp32 gradient of a value may fall to either side
// of a boundary.
#pragma once
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "backend/compare/bounds.h"
#include "backend/compare/compared_op.h"

namespace ada::backend::compare {

class AnyComparedLoss : public ComparedOp<LossOp> {
 public:
  using ComparedOp::ComparedOp;
  void SetTargets(const Targets& targets, int rows) override {
    Keep(targets, rows);
    first().SetTargets(targets, rows), second().SetTargets(targets, rows);
  }
  LossResult Result() override {
    const LossResult a = first().Result(), b = second().Result();
    Checker checker = MakeChecker("result");
    checker.CheckNumber("loss", a.loss_sum, b.loss_sum, kDoubleSums * std::fabs(a.loss_sum));
    checker.CheckNumber("locations", a.location_sum, b.location_sum,
                        kDoubleSums * std::fabs(a.location_sum));
    checker.CheckNumber("top1", static_cast<double>(a.top1), static_cast<double>(b.top1), 0);
    checker.CheckNumber("top5", static_cast<double>(a.top5), static_cast<double>(b.top5), 0);
    return a;
  }

 protected:
  // What the checks need of the targets.
  virtual void Keep(const Targets& targets, int rows) = 0;
};

// ln(sum of e^score) of `classes` scores.
inline double LogSumOf(const float* z, std::int64_t classes) {
  double highest = -INFINITY, sum = 0;
  for (std::int64_t k = 0; k < classes; ++k) highest = std::max(highest, Wide(z[k]));
  for (std::int64_t k = 0; k < classes; ++k) sum += std::exp(Wide(z[k]) - highest);
  return highest + std::log(sum);
}
// Scores [rows, classes] and what their softmax makes of them.
struct Softmax {
  Softmax(Checker& checker, const Tensor& tensor, int images)
      : scores(checker.addresses().Values(0, tensor, images)), classes(tensor.shape.c) {
    for (std::size_t at = 0; at < scores.size(); at += static_cast<std::size_t>(classes))
      log_sums.push_back(LogSumOf(scores.data() + at, classes));
  }
  // The probability of score i.
  double P(std::int64_t i) const {
    return std::exp(Wide(scores[static_cast<std::size_t>(i)]) -
                    log_sums[static_cast<std::size_t>(i / classes)]);
  }
  std::vector<float> scores;
  std::int64_t classes;
  std::vector<double> log_sums;  // a row each
};
// Checks the gradient `name` of such scores: where value i may lie, by interval(i).
template <class IntervalOf>
void CheckScores(const std::string& name, const Gradient& gradient, const Pass& pass,
                 Checker& checker, IntervalOf&& interval) {
  checker.CheckScale(name, gradient.scale);
  const FunctionBounds bounds(interval);
  checker.Check(OutputOf(name, gradient), pass, &bounds);
}
// Where (p - target) * weight / terms may lie, times S; reference: rounded to `gradient`'s format
// before that.
inline Interval ScoreBounds(double p, double target, double weight, const Pass& pass,
                            const Gradient& gradient, bool reference) {
  const double factor = pass.loss_terms == 0 ? 0 : weight / static_cast<double>(pass.loss_terms);
  const double g = (p - target) * factor, error = 0x1p-40 * (p + target) * std::fabs(factor);
  Interval in = {g - error, g + error};
  if (!in.finite()) return in;
  if (reference) in = RoundedTo(gradient.tensor.format, in);
  const Ends ends = EndsOf(in);
  return {static_cast<double>(ends.low * pass.loss_scale),
          static_cast<double>(ends.high * pass.loss_scale)};
}

}  // namespace ada::backend::compare
