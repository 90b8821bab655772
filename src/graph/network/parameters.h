// The parameters of a network: names and dims as in PyTorch, memory from the backend, start values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/model_config.h"
#include "io/tensor_files/safetensors.h"
#include "number/tensor.h"

namespace ada::graph {

struct Network;

// A trained tensor or a running statistic, named as in PyTorch (conv1.weight, bn1.running_mean).
struct Parameter {
  std::string name;
  std::vector<std::int64_t> dims;    // PyTorch's: [out, in, kh, kw], [out, in], [c]
  Tensor value;                      // fp32 master, bytes in the order of dims
  Tensor gradient;                   // fp32, unscaled; empty for a running statistic
  std::optional<double> start = {};  // ParameterSpec::start
  double start_factor = 1;           // LayerConfig::start_factor
  // Its names in the layers that are tied to its own, because PyTorch's state dicts contain a tied
  // weight once for each layer.
  std::vector<std::string> other_names = {};
  // The layer that owns it, the layers that are tied to its own, and what it is to them: weight,
  // bias, running_mean, running_var. A name need not be made of these (in_proj_weight,
  // class_token).
  std::string layer = {};
  std::vector<std::string> tied_layers = {};
  std::string part = {};

  std::int64_t numel() const;
  // A batch norm's average, which moves with each batch; affine's constants are none.
  bool running_statistic() const { return part == "running_mean" || part == "running_var"; }
};

// A file of weights (model.init.weights) compared with the network that starts from it: which
// tensors it has, lacks, or has in addition.
struct WeightsCover {
  std::string path;
  std::size_t loaded = 0;            // tensors of the network that the file has
  std::vector<std::string> missing;  // tensors of the network that the file lacks
  std::vector<std::string> ignored;  // tensors that only the file has, under ignore_unknown
  std::vector<std::string> skipped;  // tensors of the network that `skip` excludes

  std::string LoadedText() const;  // "weights.safetensors: loaded 6 of 21 tensors"
  // One line of warning where something is missing, else "".
  std::string MissingText() const;
  // One line where tensors were left out, else "".
  std::string IgnoredText() const;
  // One line where `skip` left tensors out, else "".
  std::string SkippedText() const;
};

// Whether a glob of `init.skip` matches the tensor, or its layer.
bool IsSkipped(const config::InitConfig& init, const std::string& tensor);

// Opens `init.weights`. Throws DataError, with the key's name, if it cannot be opened or is not a
// safetensors file.
SafetensorsFile OpenWeights(const config::InitConfig& init);
// The name that a parameter has in `file`: its own, or that of a layer tied to it; "": none. All
// names begin with `prefix` there.
std::string NameInFile(const SafetensorsFile& file, const Parameter& parameter,
                       const std::string& prefix = "");
// A weight that several layers share may be in a file once for each of them: DataError where the
// values differ.
void CheckTied(const SafetensorsFile& file, const Parameter& parameter);
// Compares names and shapes; batch norm's num_batches_tracked is ignored. DataError: a wrong shape,
// a name that the network does not have (unless ignore_unknown), a missing tensor under
// require_all, a tied weight that is stored twice with different values, or a file without any
// tensor of the network. ConfigError: an entry of `skip` that matches no tensor of the network.
WeightsCover CoverOf(const SafetensorsFile& file, const config::InitConfig& init,
                     const std::vector<Parameter>& parameters);

struct NetworkParameters {
  std::vector<Parameter> all;  // in layer order
  // By node: those that it reads, in the order of its kind's row; a tied weight is its owner's.
  std::vector<std::vector<int>> of;
};

// Parameters share the values of `share` if it is given (the same network), otherwise they are new
// and zero; gradients are allocated if `training`.
NetworkParameters MakeParameters(const Network& network, bool training, backend::Backend& backend,
                                 const std::vector<Parameter>* share);

// Initial values of one parameter that no entry of model.init.parameters names and no file
// contains. Weights follow the rule's scheme, with fan-in and fan-out as in torch.nn.init (a
// convolution's weight [out, in, kh, kw] has fan-in in*kh*kw and fan-out out*kh*kw):
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
// with fans do not change vectors), else with 0 where zero_gamma says so (`last_norms`), else
// by StartValues; then replaces those that are in init.weights. Returns what that file gave (empty
// if there is none), with the errors of CoverOf. The caller refreshes the copies of weights.
WeightsCover Initialize(std::vector<Parameter>& parameters,
                        const std::vector<std::string>& last_norms, const config::InitConfig& init,
                        std::uint64_t seed, backend::Backend& backend);

// Returns, in layer order, the batch norms that end the residual branches of a network: of the
// values that an addition sums, the one with the most layers on its longest path from the input, if
// it comes from a batch norm. model.init.zero_gamma sets its gamma to 0, so that a block starts as
// its shortcut.
std::vector<std::string> LastNorms(const Network& network);

}  // namespace ada::graph
