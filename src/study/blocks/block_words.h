// Figures of block-scaled tensors as they are shown to people.
#pragma once
#include <string>

#include "telemetry/block_figures.h"

namespace ada::study {

std::string DecibelText(double db);  // "12.3"; "exact" without noise, "-" for NaN
std::string Log2Text(double log2);   // "-7.5"; "-" for NaN
// Whether `a` stands before `b` where what loses most comes first; tensors of zeros alone, whose
// share is NaN, come last.
bool LosesMore(const telemetry::BlockFigures& a, const telemetry::BlockFigures& b);
std::string ScalesText(const telemetry::BlockFigures& figures);  // "-8..3", of their log2

}  // namespace ada::study
