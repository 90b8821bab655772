// A file of weights (model.init.weights) compared with the network that starts with it: what it
// gives, what it lacks, and what it has too much.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "core/tensor_files/safetensors.h"

namespace ada::graph {

struct Parameter;

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
// require_all, a tied weight that it has twice with different values, or a file that gives nothing
// at all. ConfigError: an entry of `skip` that matches no tensor of the network.
WeightsCover CoverOf(const SafetensorsFile& file, const config::InitConfig& init,
                     const std::vector<Parameter>& parameters);

}  // namespace ada::graph
