// The layers of a dump (log.dump), or of any file with NAME.x, NAME.w and NAME.dy, whose products
// what-if judges, and what accumulators would lose of their sums.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "config/precision_config.h"
#include "io/tensor_files/safetensors.h"
#include "judge/operand_loss.h"
#include "telemetry/rows.h"

namespace ada::study {

// Returns the names of the linear layers and convolutions, in the order of the file. Throws
// DataError where there is none.
std::vector<std::string> DumpedMatmuls(const SafetensorsFile& file);
// Reads each of them and calls `use` with it. Throws DataError also where tensors do not fit
// together.
void EachDumpedMatmul(const SafetensorsFile& file,
                      const std::function<void(const judge::MatmulTensors&)>& use);

// The sums of one product of one layer. Steps and epochs are not used.
struct DumpSumsRow : telemetry::AccumulatorRow {
  std::string format;  // of the operands; empty: as they are stored

  static constexpr auto Columns() {
    return telemetry::Joined(std::to_array<telemetry::Column<DumpSumsRow>>({
                                 {"layer", &DumpSumsRow::layer},
                                 {"tensor", &DumpSumsRow::tensor},
                                 {"format", &DumpSumsRow::format},
                             }),
                             telemetry::AccumulatorColumns<DumpSumsRow>());
  }
};

// A row for each product of the layer, an x at least, whose sums `precision` gives an accumulator:
// operands are as precision.operands say. The steps of a window are what the file's metadata say
// ("2x1"), else they follow from the shapes, as padding does. Throws ConfigError for
// operands in blocks of a convolution, whose places the matrices here do not keep, and for what
// precision.accumulate refuses.
std::vector<DumpSumsRow> JudgeSums(const SafetensorsFile& file, const judge::MatmulTensors& layer,
                                   const config::PrecisionConfig& precision);

}  // namespace ada::study
