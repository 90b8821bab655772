// Operands: layers whose gradients lose much as operands, and formats that would serve all.
#include <algorithm>
#include <iterator>

#include "config/load.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "study/advise/run_record.h"

namespace ada::study {
namespace {

using telemetry::TensorTotals;

// A format of four bits loses some percent of any tensor: what is told lies well above that, and
// above what the other layers lose, so that the format stays where it serves.
constexpr double kManyLostByOperands = 20;
constexpr double kTimesMedian = 2;

// What the middle one of the layers loses of this operand.
double MedianLost(const RunRecord& record, const std::string& operand) {
  std::vector<double> lost;
  for (const TensorTotals& t : record.layers.tensors())
    if (t.tensor == operand) lost.push_back(t.lost_mean());
  const auto middle = lost.begin() + std::ssize(lost) / 2;
  std::nth_element(lost.begin(), middle, lost.end());
  return *middle;
}

std::optional<Advice> LeaveOut(const RunRecord& record) {
  std::vector<std::string> layers, mends;
  const TensorTotals* worst = nullptr;
  for (const TensorTotals& t : record.layers.tensors()) {
    if (!IsOperand(t.tensor) || !CarriesS(t.tensor) || t.lost_mean() < kManyLostByOperands ||
        t.lost_mean() < kTimesMedian * MedianLost(record, t.tensor))
      continue;
    if (!Contains(layers, t.layer)) layers.push_back(t.layer);
    mends.push_back(t.layer + "." + t.tensor);
    if (worst == nullptr || t.lost_mean() > worst->lost_mean()) worst = &t;
  }
  if (worst == nullptr) return std::nullopt;
  Advice advice = PlainOperands(record.config, layers);
  advice.reason = worst->layer + "." + worst->tensor + " loses " + Pct(worst->lost_mean()) +
                  " as an operand in " + worst->last_format;
  if (layers.size() > 1)
    advice.reason += "; those of " +
                     Counted(static_cast<std::int64_t>(layers.size()) - 1, "other layer") +
                     " lose much too";
  advice.reason += ": as stored, they keep what the format of gradients keeps";
  advice.sure = "little";
  advice.mends = std::move(mends);
  return advice;
}

// The narrowest that serves all, where the run asked about it or has another.
std::optional<Advice> Narrow(const RunRecord& record) {
  const JudgedFormat* best = FirstServing(record.operands);
  if (best == nullptr) return std::nullopt;
  const AnyFormat format = config::ReadAnyFormat(best->format);
  return Advice{"precision", OperandKeys(format, record.config),
                "operands in " + best->format + ' ' + best->Text() +
                    ": the narrowest of those that were judged, and narrow enough"};
}

}  // namespace

std::vector<Advice> OperandAdvice(const RunRecord& record) {
  std::vector<Advice> all;
  for (std::optional<Advice> advice : {LeaveOut(record), Narrow(record)})
    if (advice) all.push_back(std::move(*advice));
  return all;
}

}  // namespace ada::study
