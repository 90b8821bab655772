// What became of values that the updates of a step made (masters, the optimizer's state, changes of
// weights), as rows of underflow.csv.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "optim/optimizer.h"

namespace ada::train {

// One kind of values that the update of a layer made.
struct UpdateRow {
  std::string layer, tensor;
  NumberFormat format;
  TensorStats stats;
};

// A row for all of a layer, and one for each part where it has several. kept: of each parameter
// that is trained, or nothing.
std::vector<UpdateRow> UpdateRows(const config::Config& config, const graph::Graph& graph,
                                  const std::vector<optim::KeptStats>& kept);

}  // namespace ada::train
