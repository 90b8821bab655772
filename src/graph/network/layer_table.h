// The layer table of --dry-run: its rows, and their lines of text. Knows no policy: its words are
// passed in.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace ada::graph {

// One layer, as the table and the logs name it.
struct LayerRow {
  std::string name, kind;
  Shape output;  // of one image: n is 1
  std::int64_t parameters = 0;
  double mflop = 0;         // forward, one image, a multiply-add counted as 2
  NumberFormat format;      // of its output
  bool has_weight = false;  // conv2d, linear
};

// A header, one line per layer (name, kind, output shape, parameters, MFLOP, format, policy) and
// the totals, in aligned columns. `policies` has one word per layer, or is empty (no such column).
std::vector<std::string> LayerTable(const std::vector<LayerRow>& layers,
                                    const std::vector<std::string>& policies);

}  // namespace ada::graph
