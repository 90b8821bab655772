// The layers of a dump (log.dump), or of any file with NAME.x, NAME.w and NAME.dy, whose products
// what-if judges, and what accumulators would lose of their sums.
#pragma once
#include <cstdint>
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

// How a convolution's window moves: height, width.
struct WindowSteps {
  std::int64_t stride[2] = {1, 1};
};

// The steps of one of these: what the file's metadata say ("2x1"), else what follows from the
// shapes of x and dy.
WindowSteps StepsOf(const SafetensorsFile& file, const judge::MatmulTensors& layer);

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
