// The section `model` as structs: layers, networks of the zoo, and how weights start (config.h).
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/transformer.h"
#include "error.h"
#include "layers/layer_keys.h"

namespace ada::config {

// One entry of `model.layers`, or what a zoo model expands to. A key that its kind does not know is
// an error of the reader.
struct LayerConfig : layers::LayerKeys {
  std::string name;
  std::string kind;                 // one of graph::LayerKinds
  std::vector<std::string> inputs;  // empty: the layer before
  bool is_per_class = false;        // channels or features say `classes`: model.classes of them
  double start_factor = 1;          // of the deviation that model.init.scheme gives its weight
  std::string parameter_prefix;     // of its parameters' names; empty: its name and a dot (no key)
  Location where;
};

// Distributions by which weights start. The first six scale with the fan of the weight (He et al.
// 2015, Glorot and Bengio 2010, LeCun et al. 1998); the others take their numbers from InitRule.
enum class InitScheme {
  kHeNormal,
  kHeUniform,
  kXavierNormal,
  kXavierUniform,
  kLecunNormal,
  kLecunUniform,
  kNormal,
  kUniform,
  kConstant
};
// The distribution of a parameter's first values.
struct InitRule {
  // Only the members that belong to the scheme are read. The reader requires `std`, `bound` and
  // `value` for their schemes; transformers of the zoo give `std` a start (StartBy).
  InitScheme scheme = InitScheme::kHeNormal;
  enum class Fan { kIn, kOut } fan = Fan::kIn;  // he, lecun
  std::optional<double> gain;                   // he: sqrt(2), xavier, lecun: 1
  double std = 0, bound = 0, value = 0;         // normal; uniform; constant
};
// One entry of `model.init.parameters`.
struct InitParametersConfig : InitRule {
  std::string match;
  Location where;
};
// The section `model.init`. Parameters start by the scheme, then by the last matching entry of
// `parameters`, and at the end tensors of the file `weights` replace what these gave. Vectors
// (biases, gamma, beta) start at 0 or 1 by their name, whatever the scheme is, unless an entry
// matches them (graph/network/parameters.cpp).
struct InitConfig : InitRule {
  std::vector<InitParametersConfig> parameters;  // the last match wins, as a whole
  bool zero_gamma = false;
  std::string weights;       // safetensors file; overrides the scheme for every tensor found in it
  bool require_all = false;  // a tensor that the file does not have is an error
  bool ignore_unknown = false;  // tensors of the file that the network does not have are left out
  std::vector<std::string>
      skip;  // globs on layers or tensors that start by the scheme all the same
  Location where;
};
// The section `model`: a network of the zoo with its few options, or a list of layers.
// graph/network/zoo.cpp expands a name into the same LayerConfig entries that a list has, so
// everything after it sees layers only. A file that `model.file` names is already merged in.
struct ModelConfig {
  std::string zoo;                       // empty: `layers`
  int classes = 10;                      // 0: as many as the data's files say
  std::string shortcut = "A";            // resnet: A, B or reference
  std::vector<int> hidden = {512, 512};  // mlp
  double dropout = 0;                    // 0: none
  bool plain = false;                    // vgg: without batch norm
  double width = 1;                      // segnet, ssd: factor of the channels
  bool batch_norm = false;               // ssd: after every convolution but those of the heads
  bool cast = false;                     // segnet, ssd: a `scale` layer before the loss
  TransformerConfig transformer;         // gpt2, llama, vit
  std::vector<LayerConfig> layers;       // `repeat` already expanded
  std::vector<std::string> outputs;      // layers that the loss is of; empty: the last one
  std::vector<Location> outputs_where;   // of each
  InitConfig init;
  Location where;
};

}  // namespace ada::config
