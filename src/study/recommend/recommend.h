// `ada-train recommend`: the scales and formats that the record of a run speaks for, with the
// reasons and a YAML fragment that can be used at once. Trains nothing.
#pragma once
#include <iosfwd>
#include <string>

namespace ada::study {

struct RecommendOptions {
  std::string folder;
  double underflow_target_pct = 0.1;  // of the non-zero values of a tensor that may underflow
  double headroom_bits = 2;           // powers of two between the largest value seen and overflow
};

// Throws DataError where the run has no histograms.
void Recommend(const RecommendOptions& options, std::ostream& out);

}  // namespace ada::study
