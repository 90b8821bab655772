// Matmuls: layers whose gradients lose much as operands, formats that would serve all, and sums by
// accumulators (precision.accumulate) that overflow, or whose errors are larger than what operands
// in FP8 bring along.
#include <algorithm>
#include <iterator>
#include <variant>

#include "config/load.h"
#include "config/sections/sections.h"
#include "config/yaml/node.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "scaling/rules/accumulator.h"
#include "study/advise/run_record.h"
#include "study/text_table.h"
#include "telemetry/accumulator_totals.h"

namespace ada::study {
namespace {

using telemetry::TensorTotals;

// A format of four bits loses some percent of any tensor: what is told lies well above that, and
// above what the other layers lose, so that the format stays where it serves.
constexpr double kManyLostByOperands = 20;
constexpr double kTimesMedian = 2;
constexpr int kFewBits = 1;  // of the mantissa

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
  advice.reason = worst->layer + "." + worst->tensor + " loses " + PercentText(worst->lost_mean()) +
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

// The format with a rule whose scales cut off no value: of powers of two `floor` and `even` may
// bring the largest value of a block beyond the element's largest one.
std::optional<AnyFormat> WithoutCuts(const AnyFormat& format) {
  const auto* block = std::get_if<BlockFormat>(&format);
  if (block == nullptr || block->scale != BlockScale::kE8M0) return std::nullopt;
  if (block->rule != BlockRule::kFloor && block->rule != BlockRule::kEven) return std::nullopt;
  BlockFormat changed = *block;
  changed.rule = BlockRule::kRceil;
  return changed;
}

// The run's own formats whose rule cuts off more than the target: the same with another rule.
std::optional<Advice> CutOff(const RecommendOptions& options, const RunRecord& record) {
  config::Config then = record.config;
  const judge::JudgedFormat* worst = nullptr;
  const auto change = [&](config::OperandsConfig& operands) {
    bool changed = false;
    for (std::optional<config::OperandConfig>& operand : operands.by_operand) {
      if (!operand || !operand->format) continue;
      const judge::JudgedFormat* judged =
          judge::FindJudged(record.operands, FormatName(*operand->format));
      if (judged == nullptr || judged->saturated_pct <= 100 * options.underflow_target) continue;
      const std::optional<AnyFormat> better = WithoutCuts(*operand->format);
      if (!better) continue;
      operand->format = better;
      changed = true;
      if (worst == nullptr || judged->saturated_pct > worst->saturated_pct) worst = judged;
    }
    return changed;
  };
  Keys keys;
  if (change(then.precision.operands)) keys = OperandKeys(then, record.config);
  bool layers = false;
  for (config::LayerPrecisionConfig& layer : then.precision.layers)
    layers = change(layer.operands) || layers;
  if (layers) keys.emplace_back("layers", LayersText(then));
  if (worst == nullptr) return std::nullopt;
  return Advice{"precision", keys,
                worst->saturated_by + " has " + PercentText(worst->saturated_pct) +
                    " of its values cut off by the scales of " + worst->format +
                    "; those of rule rceil cut off none, with as many bits",
                "well"};
}

// Gradients in elements of so few bits that rounding to nearest takes much of them to one side.
// Stochastic rounding errs to both, and recipes of four bits have it.
std::optional<Advice> FewBits(const RunRecord& record) {
  const config::OperandsConfig& operands = record.config.precision.operands;
  const std::optional<config::OperandConfig>& dy =
      operands.by_operand[static_cast<std::size_t>(Operand::kDwDy)];
  if (!dy || !dy->format || dy->rounding != config::RoundingKind::kNearest) return std::nullopt;
  const auto* block = std::get_if<BlockFormat>(&*dy->format);
  if (block == nullptr || block->element.mantissa_bits > kFewBits) return std::nullopt;
  const judge::JudgedFormat* judged = judge::FindJudged(record.operands, FormatName(*block));
  if (judged == nullptr) return std::nullopt;
  BlockFormat wider = DefaultBlockFormat(kFp8E4M3, BlockScale::kE8M0);
  wider.rule = BlockRule::kRceil;
  return Advice{"precision", OperandKeys(AnyFormat(wider), record.config),
                judged->sqnr_by + " has an SQNR of " + Formatted("%.3g", judged->sqnr_db) +
                    " dB in " + judged->format + ", and " + judged->lost_by + " loses " +
                    PercentText(judged->lost_pct) +
                    ", rounded to nearest; eight bits in blocks lose next to nothing, and recipe "
                    "nvfp4_pretraining less than this in four",
                "fairly"};
}

// The narrowest that serves all, where the run asked about it or has another.
std::optional<Advice> Narrow(const RunRecord& record) {
  const judge::JudgedFormat* best = judge::FirstServing(record.operands);
  if (best == nullptr) return std::nullopt;
  const AnyFormat format = config::ReadAnyFormat(best->format);
  return Advice{"precision", OperandKeys(format, record.config),
                "operands in " + best->format + ' ' + best->Text() +
                    ": the narrowest of those that were judged, and narrow enough"};
}

// Operands in fp8_e4m3 have some 30 dB: what lies below is of the sums.
constexpr double kNoisySums = 25;
constexpr int kPromote = 128;  // DeepSeek-V3's (arXiv 2412.19437, 3.3.2)

const telemetry::AccumulatorTotals* WorstOf(const RunRecord& record) {
  for (const telemetry::AccumulatorTotals& one : record.layers.sums())
    if (one.overflow > 0) return &one;
  const telemetry::AccumulatorTotals* worst = telemetry::WorstSums(record.layers.sums());
  return worst != nullptr && worst->sqnr_db() < kNoisySums ? worst : nullptr;
}

std::optional<scaling::Product> ProductNamed(const std::string& name) {
  for (std::size_t i = 0; i < scaling::kProducts; ++i)
    if (name == scaling::kProductNames[i]) return static_cast<scaling::Product>(i);
  return std::nullopt;
}

}  // namespace

std::vector<Advice> OperandAdvice(const RecommendOptions& options, const RunRecord& record) {
  std::vector<Advice> all;
  for (std::optional<Advice> advice :
       {FewBits(record), CutOff(options, record), LeaveOut(record), Narrow(record)})
    if (advice) all.push_back(std::move(*advice));
  return all;
}

std::optional<Advice> SumsAdvice(const RunRecord& record) {
  const telemetry::AccumulatorTotals* worst = WorstOf(record);
  const std::optional<scaling::Product> product =
      worst != nullptr ? ProductNamed(worst->tensor) : std::nullopt;
  if (!product) return std::nullopt;
  config::Config changed = record.config;
  auto& given = changed.precision.accumulate.by_product[scaling::IndexOf(*product)];
  if (!given || !given->rule || scaling::AccumulatorText(*given->rule) != worst->accumulator)
    return std::nullopt;  // an entry of layers or of the schedule has set it
  std::string change = "in fp32";
  if (worst->overflow == 0 && given->rule->promote == 0 && kPromote % given->rule->group == 0) {
    given->rule->promote = kPromote;
    change = "added to fp32 every " + std::to_string(kPromote) + " products";
  } else {
    given->rule.reset();
  }
  const config::YamlNode node = config::ToNode(changed);
  Advice advice{"precision",
                {{"accumulate", config::FlowText(*node.Find("precision")->Find("accumulate"))}},
                ""};
  advice.reason =
      "sums of " + worst->name() + " by " + worst->accumulator + ": " +
      (worst->overflow > 0 ? std::to_string(worst->overflow) + " overflowed"
                           : telemetry::AccumulatorFigures(worst->swallowed_pct(), worst->bias(),
                                                           worst->sqnr_db())) +
      "; " + change + " they lose less";
  advice.sure = worst->overflow > 0 ? "fairly" : "little";
  return advice;
}

}  // namespace ada::study
