// How much memory a run needs, estimated before it begins.
#pragma once
#include <cstdint>
#include <string>

#include "config/config.h"
#include "data/dataset.h"
#include "data/picture_files.h"
#include "graph/graph.h"

namespace ada::run {

// How much memory a run needs, part by part, and whether there is so much: checked before any of it
// is used, because a program is killed without a message when the machine runs out of memory. All
// fields are bytes. Filled step by step: by the data, by the shapes of the network, and with exact
// numbers when the graph is made.
struct MemoryNeed {
  std::uint64_t images = 0, batches = 0;                           // on the host
  data::DecodingNeed decoding;                                     // of pictures, there too
  std::uint64_t network = 0, resident_images = 0, checkpoint = 0;  // none yet
  bool has_own_memory = false;  // network and resident images lie on a device

  std::uint64_t OnHost() const;
};

// The bytes of the images of all splits that are held in memory; 0 where they stay in files.
std::uint64_t BytesOfImages(const data::DatasetInfo& info);
// The need of the data only; `trains`: with the batches of a training, else of an evaluation alone.
MemoryNeed NeedOfData(const config::Config& config, const data::DatasetInfo& info, bool trains);

// The same with the least that a network takes: parameters, their gradients and optimizer state. It
// asks only for shapes.
MemoryNeed LeastNeed(const config::Config& config, const data::DatasetInfo& info,
                     const graph::GraphSpec& graph);

// What the optimizer of a graph will allocate.
std::uint64_t OptimizerBytes(const config::Config& config, const graph::Graph& graph);
// What precision.accumulated_gradients holds beside the gradients.
std::uint64_t AccumulatedBytes(const config::Config& config, const graph::Graph& graph);
// Bytes of the copy that is made before a checkpoint is written.
std::uint64_t CheckpointBytes(const config::Config& config, const graph::Graph& graph);

// Throws DeviceError, naming the limit and the largest tensors, if the need is more than `times`
// what the host can provide.
void RefuseMemory(const MemoryNeed& need, const graph::GraphSpec& graph, double times = 1);
// Returns a warning if the need may be too large, otherwise "".
std::string MemoryWarning(const MemoryNeed& need, const graph::GraphSpec& graph);

// "32.5 GiB (network and optimizer 30.1 GiB, images ...".
std::string ToString(const MemoryNeed& need);

}  // namespace ada::run
