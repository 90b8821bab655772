// Networks that the tests of this folder share: the zoo and some that are awkward on purpose.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/made_layers.h"
#include "graph/vision_networks.h"
#include "io/task.h"
#include "number/tensor.h"

namespace ada::graph::test {

struct TestNetwork {
  std::string name;
  config::ModelConfig model;
  Shape input;
  Task task = Task::kClassification;
};

// Pre-activation: relu feeds the addition and one more, or the addition alone.
config::ModelConfig PreActivation();
// Everything that a plan can get wrong: a value read twice by one addition, three branches, an
// addition of three, overlapping windows, layers before the first weight, an addition with the
// input.
config::ModelConfig Awkward();
// Shortcuts that are bare convolutions, one of them after an addition.
config::ModelConfig BareShortcut();
// An addition whose other input is the network's own, and a chain that ends without relu.
config::ModelConfig WithInput();
// Casts at borders: after a relu that two layers read, before the addition that joins them, where
// nothing is trained yet, and before the head.
config::ModelConfig WithCasts();
// Channels side by side: of two products, of one value twice beside the input, before a product and
// before a batch norm; smooth activations on the way.
config::ModelConfig WithConcat();
// Every function of a value, with and without its keys, where gradients meet and in chains.
config::ModelConfig WithActivations();
// A decoder: transposed convolutions, the one after a batch norm that it may compute anew, means
// between pixels, channels that become pixels; functions with slopes, one of them trained.
config::ModelConfig WithDecoder();
// Gates on either side, of both sizes and of one value twice; norms of groups, factors, dropped
// images, windows that do not fit, larger images.
config::ModelConfig WithGates();
// What SSD and SegNet need: sums over neighboring channels, poolings of odd sides and what undoes
// them (one of them read by two layers, one of whole windows), norms over lengths, joined boxes.
config::ModelConfig WithUnpooling();
// Two outputs, on images of one row: the first is read by other layers too, and stands in the
// middle of a batch norm and its relu.
config::ModelConfig WithTwoOutputs();
// Every layer of sequences that images can reach. The fake backend plans them, and computes
// nothing.
config::ModelConfig WithSequences();
std::vector<TestNetwork> AllNetworks();

}  // namespace ada::graph::test
