// The parameters of a network: names and dims as in PyTorch, memory from the backend, start values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "core/tensor.h"
#include "core/tensor_files/safetensors.h"

namespace ada::graph {

class Graph;
struct Network;

// A trained tensor or a running statistic, named as in PyTorch (conv1.weight, bn1.running_mean).
struct Parameter {
  std::string name;
  std::vector<std::int64_t> dims;    // PyTorch's: [out, in, kh, kw], [out, in], [c]
  Tensor value;                      // fp32 master, bytes in the order of dims
  Tensor gradient;                   // fp32, unscaled; empty for a running statistic
  std::optional<double> start = {};  // ParameterSpec::start
  double start_factor = 1;           // LayerConfig::start_factor
  // What it would be called in the layers that are tied to its own: PyTorch's state dicts have a
  // tied weight once for each.
  std::vector<std::string> other_names = {};

  std::int64_t numel() const;
};

// A file of weights (model.init.weights) compared with the network that starts with it: what it
// gives, what it lacks, and what it has too much.

struct WeightsCover {
  std::string path;
  std::size_t loaded = 0;            // tensors of the network that the file has
  std::vector<std::string> missing;  // those that it lacks
  std::vector<std::string> ignored;  // tensors of the file alone, under ignore_unknown
  std::vector<std::string> skipped;  // tensors of the network that `skip` leaves as they start

  std::string LoadedText() const;  // "weights.safetensors: loaded 6 of 21 tensors"
  // One line of warning where something is missing, else "".
  std::string MissingText() const;
  // One line where tensors were left out, else "".
  std::string IgnoredText() const;
  // One line where `skip` left tensors out, else "".
  std::string SkippedText() const;
};

// Whether `init.skip` has a glob that matches the tensor, or its layer.
bool IsSkipped(const config::InitConfig& init, const std::string& tensor);

// Opens `init.weights`. DataError with the key's name where it cannot be opened or is no
// safetensors file.
SafetensorsFile OpenWeights(const config::InitConfig& init);
// The name under which `file` has a parameter: its own, or that of a layer tied to it; "": none.
std::string NameInFile(const SafetensorsFile& file, const Parameter& parameter);
// Compares names and shapes; batch norm's num_batches_tracked counts nowhere. DataError: a wrong
// shape, a name that the network does not have (unless ignore_unknown), a missing tensor under
// require_all, a tied weight that it has twice with different values, or a file that gives
// nothing at all. ConfigError: an entry of `skip` that matches no tensor of the network.
WeightsCover CoverOf(const SafetensorsFile& file, const config::InitConfig& init,
                     const std::vector<Parameter>& parameters);

struct NetworkParameters {
  std::vector<Parameter> all;  // in layer order
  // By node: those that it reads, in the order of its kind's row; a tied weight is another's.
  std::vector<std::vector<int>> of;
};

// Values are those of `share` where it is given (the same network), else new and zero; gradients
// are made where `training`.
NetworkParameters MakeParameters(const Network& network, bool training, backend::Backend& backend,
                                 const Graph* share);

// Start values of one parameter that no entry of model.init.parameters names and no file has.
// Weights by the rule's scheme, fan-in and fan-out counted as in torch.nn.init (a convolution's
// weight [out, in, kh, kw] has fan-in in*kh*kw and fan-out out*kh*kw):
//   he_normal      N(0, gain^2 / fan), gain^2 = 2, fan = fan_in     He et al. 2015
//   he_uniform     U(-a, a), a^2 = 3 * gain^2 / fan
//   xavier_normal  N(0, gain^2 * 2 / (fan_in + fan_out)), gain = 1  Glorot and Bengio 2010
//   xavier_uniform U(-a, a), a^2 = 6 * gain^2 / (fan_in + fan_out)
//   lecun_normal, lecun_uniform      he's with gain = 1             LeCun et al. 1998
//   normal N(0, std^2); uniform U(-bound, bound); constant: value
// gamma and running_var are 1, all others 0. The same (seed, name, dims) give the same bytes.
std::vector<float> StartValues(const Parameter& parameter, const config::InitRule& rule,
                               std::uint64_t seed);

// Fills the masters: by the last entry of init.parameters that matches a trained parameter (schemes
// with fans leave vectors alone), else with 0 where zero_gamma says so (Graph::last_norms), else by
// StartValues; then overrides from config.init.weights. Returns what that file gave (nothing where
// there is none), with the errors of CoverOf. The caller refreshes the copies of weights.
WeightsCover Initialize(Graph& graph, const config::InitConfig& init, std::uint64_t seed,
                        backend::Backend& backend);

// Which batch norms end the residual branches of a network: among the values that each addition
// takes, the one with the most layers on its longest way from the input, where a batch norm gives
// it: its gamma is what model.init.zero_gamma sets to 0, so that a block begins as its shortcut. In
// layer order.
std::vector<std::string> LastNorms(const Network& network);

}  // namespace ada::graph
