// inspect's view for a terminal: plain characters, lines of at most 80 columns (but for long
// names).
#pragma once
#include <iosfwd>
#include <vector>

#include "core/number_format.h"
#include "study/inspect/inspect_counts.h"
#include "study/inspect/inspect_scales.h"

namespace ada::study {

// The range of the format and what the marks beside the histograms mean.
void PrintFormat(const NumberFormat& format, std::ostream& out);
void PrintCount(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                std::ostream& out);
void PrintSkipped(const TensorEntry& entry, std::ostream& out);  // an integer tensor
void PrintScales(const FileLayer& layer, const std::vector<MethodScale>& scales, std::ostream& out);

}  // namespace ada::study
