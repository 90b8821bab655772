// The start of a twin as a file, for trainings that are whole runs with folders of their own.
#include <span>

#include "graph/network/parameters.h"
#include "io/tensor_files/safetensors.h"
#include "run/assemble/assemble.h"
#include "run/fork/fork.h"
#include "step/specs.h"
#include "step/weight_values.h"

namespace ada::run {

// A graph is built for its parameters alone; no step is computed.
void WriteTwinStart(const config::Config& config, const Shape& image, std::uint64_t twin,
                    const NumberFormat& unit, const std::string& path) {
  const ChosenBackend chosen = MakeBackend(config.device);
  backend::Backend& backend = *chosen.backend;
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(step::TrainGraph(config, image, *policy), backend);
  graph::Initialize(*graph, config.model.init, config.seed, backend);
  ForkSpec spec;
  spec.precision = config.precision;
  spec.twin = twin;
  for (const graph::Parameter& parameter : graph->parameters()) spec.units[parameter.layer] = unit;
  MoveWeights(spec, *graph, backend);
  SafetensorsWriter writer;
  std::vector<std::vector<float>> values;  // which the writer refers to
  values.reserve(graph->parameters().size());
  for (const graph::Parameter& parameter : graph->parameters()) {
    values.push_back(step::HostValues(parameter.value, backend));
    writer.Add(parameter.name, parameter.dims, std::span<const float>(values.back()));
  }
  writer.WriteAtomically(path);
}

}  // namespace ada::run
