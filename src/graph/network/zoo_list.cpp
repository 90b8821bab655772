// The numbers come from resolving the network as a run does, so they cannot differ from it.
#include <cstdio>

#include "graph/network/shapes.h"
#include "graph/network/zoo.h"

namespace ada::graph {
namespace {

// "32x32x3" or "128 tokens".
std::string InputText(const ZooModel& entry) {
  const Shape& input = entry.usual_input;
  return entry.task == Task::kLanguage ? std::to_string(input.h) + " tokens" : ToString(input);
}

}  // namespace

std::vector<std::string> ListModels() {
  std::vector<std::string> lines;
  for (const ZooModel& entry : ZooModels()) {
    config::ModelConfig model;
    model.zoo = entry.name;
    model.classes = entry.usual_classes;
    model.transformer = config::TransformerDefaults(entry.name);
    const Network network = Resolve(model, entry.usual_input, entry.task);
    char line[160];
    std::snprintf(line, sizeof line, "%-16s %10lld parameters %8.1f MFLOP at %-8s%s%s",
                  entry.name.c_str(), static_cast<long long>(network.trained_numel()),
                  network.mflop(), InputText(entry).c_str(), *entry.keys ? "  keys: " : "",
                  entry.keys);
    lines.emplace_back(line);
    while (lines.back().back() == ' ') lines.back().pop_back();
  }
  return lines;
}

}  // namespace ada::graph
