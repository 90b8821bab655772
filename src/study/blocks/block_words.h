// Figures of block-scaled tensors as they are shown to people.
#pragma once
#include <string>

#include "telemetry/block_figures.h"

namespace ada::study {

std::string DecibelText(double db);  // "12.3"; "exact" without noise, "-" for NaN
std::string Log2Text(double log2);   // "-7.5"; "-" for NaN
std::string ScalesText(const telemetry::BlockFigures& figures);  // "-8..3", of their log2

}  // namespace ada::study
