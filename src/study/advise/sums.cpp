// Sums by accumulators (precision.accumulate): those that overflow, or whose errors are larger than
// what FP8's operands bring along.
#include "config/sections/sections.h"
#include "config/yaml/node.h"
#include "scaling/rules/accumulator.h"
#include "study/advise/run_record.h"
#include "telemetry/accumulator_totals.h"

namespace ada::study {
namespace {

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
