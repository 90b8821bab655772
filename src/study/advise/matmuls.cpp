// Matmuls: layers whose gradients lose much as operands, formats that would serve all, and sums by
// accumulators (precision.accumulate) that overflow, or whose errors are larger than what operands
// in FP8 bring along.
#include <algorithm>
#include <iterator>
#include <variant>

#include "config/load.h"
#include "error.h"
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
constexpr double kMostLostByOperands = 50;  // more is much, whatever others lose
constexpr int kFewBits = 1;                 // of the mantissa

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
        t.lost_mean() < std::min(kMostLostByOperands, kTimesMedian * MedianLost(record, t.tensor)))
      continue;
    if (!Contains(layers, t.layer)) layers.push_back(t.layer);
    mends.push_back(t.name());
    if (worst == nullptr || t.lost_mean() > worst->lost_mean()) worst = &t;
  }
  if (worst == nullptr) return std::nullopt;
  Advice advice = PlainOperands(record.config, layers);
  advice.reason =
      worst->name() + " loses " + LostWords(*worst) + ", as an operand in " + worst->last_format;
  if (layers.size() > 1)
    advice.reason +=
        "; those of " + Counted(std::ssize(layers) - 1, "other layer") + " lose much too";
  advice.reason += ": as stored, they keep what the format of gradients keeps";
  advice.sure = "little";
  advice.mends = std::move(mends);
  return advice;
}

// Whether a format named in the logs is one of single values; a recorder may know other names.
bool IsPlain(const std::string& name) {
  try {
    return !name.empty() && std::holds_alternative<NumberFormat>(config::ReadAnyFormat(name));
  } catch (const ConfigError&) {
    return false;
  }
}

// Operands in plain formats that no scale brings into their range, and that lose much.
std::optional<Advice> Unscaled(const RunRecord& record) {
  using Kind = config::TensorScalingConfig::Kind;
  config::Config then = record.config;
  config::OperandsConfig& operands = then.precision.operands;
  const auto scaled = [](const std::optional<config::OperandConfig>& one) {
    return one && one->tensor_scaling && *one->tensor_scaling != Kind::kNone;
  };
  if ((operands.tensor_scaling && operands.tensor_scaling->kind != Kind::kNone) ||
      std::any_of(operands.by_operand.begin(), operands.by_operand.end(), scaled) ||
      std::any_of(operands.attention.begin(), operands.attention.end(), scaled))
    return std::nullopt;
  const TensorTotals* worst = nullptr;
  std::vector<std::string> mends;
  for (const TensorTotals& t : record.layers.tensors()) {
    if (!IsOperand(t.tensor) || t.lost_mean() < kManyLost || !IsPlain(t.last_format)) continue;
    mends.push_back(t.name());
    if (worst == nullptr || t.lost_mean() > worst->lost_mean()) worst = &t;
  }
  if (worst == nullptr) return std::nullopt;
  if (!operands.tensor_scaling) operands.tensor_scaling.emplace();
  operands.tensor_scaling->kind = Kind::kCurrent;
  return Advice{"precision", OperandKeys(std::move(then), record.config),
                worst->name() + " loses " + LostWords(*worst) + ", as an operand in " +
                    worst->last_format +
                    " without a scale of its own: one from its largest magnitude keeps it",
                "fairly", mends};
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
  if (layers) keys.emplace_back("layers", ValueText(then, "precision", "layers"));
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
  const TensorTotals* most =
      telemetry::WorstTensor(record.layers, &TensorTotals::lost_mean,
                             [](const TensorTotals& t) { return IsOperand(t.tensor); });
  if (judged == nullptr || most == nullptr) return std::nullopt;
  BlockFormat wider = DefaultBlockFormat(kFp8E4M3, BlockScale::kE8M0);
  wider.rule = BlockRule::kRceil;
  return Advice{"precision", OperandKeys(AnyFormat(wider), record.config),
                judged->sqnr_by + " has an SQNR of " + Formatted("%.3g", judged->sqnr_db) +
                    " dB in " + judged->format + ", and " + most->name() + " loses " +
                    LostWords(*most) +
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
// Bits that hold so many products: Hopper's accumulator has 13 for operands in FP8.
constexpr int kLongEnough = 10;

// The worst of a matmul's sums by this accumulator, where they overflow or are noisy; null: they
// are fine, or another entry (layers, schedule) has set it.
const telemetry::AccumulatorTotals* BadSums(const RunRecord& record, const std::string& matmul,
                                            const std::string& accumulator) {
  const telemetry::AccumulatorTotals* worst = nullptr;
  for (const telemetry::AccumulatorTotals& one : record.layers.sums()) {
    if (one.tensor != matmul || one.accumulator != accumulator) continue;
    if (one.overflow > 0) return &one;
    if (one.sqnr_db() < kNoisySums && (worst == nullptr || one.sqnr_db() < worst->sqnr_db()))
      worst = &one;
  }
  return worst;
}

}  // namespace

std::vector<Advice> OperandAdvice(const RecommendOptions& options, const RunRecord& record) {
  std::vector<Advice> all;
  for (std::optional<Advice> advice : {FewBits(record), CutOff(options, record), Unscaled(record),
                                       LeaveOut(record), Narrow(record)})
    if (advice) all.push_back(std::move(*advice));
  return all;
}

std::optional<Advice> SumsAdvice(const RunRecord& record) {
  config::Config changed = record.config;
  const telemetry::AccumulatorTotals* worst = nullptr;
  std::vector<config::AccumulateConfig*> bad;
  bool promotes = true;  // whether that is enough for all of them
  for (std::size_t i = 0; i < scaling::kLayerMatmuls; ++i) {
    auto& given = changed.precision.accumulate.by_matmul[i];
    if (!given || !given->rule) continue;
    const scaling::Accumulator& rule = *given->rule;
    const telemetry::AccumulatorTotals* sums =
        BadSums(record, scaling::kLayerMatmulNames[i], scaling::AccumulatorText(rule));
    if (sums == nullptr) continue;
    bad.push_back(&*given);
    promotes = promotes && sums->overflow == 0 && rule.promote == 0 && kPromote % rule.group == 0 &&
               rule.format.mantissa_bits >= kLongEnough &&
               (!rule.cuts() || rule.fraction_bits >= kLongEnough);
    if (worst == nullptr || std::pair(sums->overflow == 0, sums->sqnr_db()) <
                                std::pair(worst->overflow == 0, worst->sqnr_db()))
      worst = sums;
  }
  if (worst == nullptr) return std::nullopt;
  for (config::AccumulateConfig* one : bad) {
    if (promotes)
      one->rule->promote = kPromote;
    else
      one->rule.reset();
  }
  Advice advice{"precision", {{"accumulate", ValueText(changed, "precision", "accumulate")}}, ""};
  advice.reason =
      "sums of " + worst->name() + " by " + worst->accumulator + ": " +
      (worst->overflow > 0 ? std::to_string(worst->overflow) + " overflowed"
                           : telemetry::AccumulatorFigures(worst->swallowed_pct(), worst->bias(),
                                                           worst->sqnr_db())) +
      "; " +
      (promotes ? "added to fp32 every " + std::to_string(kPromote) + " products" : "in fp32") +
      " they lose less";
  advice.sure = promotes ? "little" : "fairly";
  return advice;
}

}  // namespace ada::study
