// The layer table of --dry-run: its rows, and their lines of text. It knows no policy: the texts
// about policies are passed in.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "number/blocks/block_format.h"
#include "number/tensor.h"

namespace ada::graph {

// One layer, as the table and the logs name it.
struct LayerRow {
  std::string name, kind;
  Shape output;  // of one image: n is 1
  std::int64_t parameters = 0;
  double mflop = 0;         // forward, one image, a multiply-add counted as 2
  NumberFormat format;      // of its output
  bool has_weight = false;  // conv2d, linear
  // Values of conv2d.
  std::array<int, 2> stride = {1, 1};  // height, width
  int groups = 1;
  double eps = 0;  // of batch_norm
};

// Contents of the table that are not in a layer's row.
struct LayerNotes {
  // The formats of what it rounds, by tensor (io/tensor_names.h).
  std::vector<std::pair<std::string, AnyFormat>> formats;
  std::string sums;  // the accumulators of its products; empty: fp32
  std::string policy;
};

// A header, one line for each layer (name, kind, output shape, parameters, MFLOP, the format of
// each tensor that it rounds, sums, policy) and the totals, in aligned columns. `notes`: one for
// each layer. Columns that are empty for all layers are omitted.
std::vector<std::string> LayerTable(const std::vector<LayerRow>& layers,
                                    const std::vector<LayerNotes>& notes);

}  // namespace ada::graph
