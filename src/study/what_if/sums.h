// what-if --dump --accumulate: what accumulators would lose of the sums of a dump's products.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "judge/operand_judge.h"
#include "study/what_if/dumped_matmuls.h"
#include "telemetry/rows.h"

namespace ada::study {

// The sums of one product of one layer. Steps and epochs are not used.
struct DumpSumsRow : telemetry::AccumulatorRow {
  std::string format;  // of the operands; empty: as they are stored
};

// A row for each product of the layer, an x at least, whose sums `precision` gives an accumulator:
// operands are as precision.operands say. Padding follows from the shapes. Throws ConfigError for
// operands in blocks of a convolution, whose places the matrices here do not keep, and for what
// precision.accumulate refuses.
std::vector<DumpSumsRow> JudgeSums(const judge::MatmulTensors& layer, const WindowSteps& steps,
                                   const config::PrecisionConfig& precision);

}  // namespace ada::study

namespace ada::telemetry {

template <>
inline constexpr auto kColumns<study::DumpSumsRow> =
    Joined(std::to_array<Column<study::DumpSumsRow>>({
               {"layer", &study::DumpSumsRow::layer},
               {"tensor", &study::DumpSumsRow::tensor},
               {"format", &study::DumpSumsRow::format},
           }),
           AccumulatorColumns<study::DumpSumsRow>());

}  // namespace ada::telemetry
