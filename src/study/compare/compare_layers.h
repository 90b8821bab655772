// The input gradients of two runs, layer by layer: the scale they carried and what of them
// underflowed.
#pragma once
#include <cmath>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

namespace ada::study {

// The rows that underflow.csv has of one layer's dx.
struct LayerRecord {
  std::string name;
  std::int64_t rows = 0;
  double mean_scale = NAN, last_scale = NAN;  // the mean is the geometric one
  double mean_pct = NAN, last_pct = NAN;      // of underflow_pct_nonzero; NaN: all were zero
};

// In the order of the rows. Throws as ReadTensors does.
std::vector<LayerRecord> ReadLayers(const std::string& folder);

// Two tables, scales and underflow. Layers in the order of the runs where they are few, else those
// that differ most first.
void PrintLayers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b,
                 std::ostream& out);

}  // namespace ada::study
