// A training graph on the fake backend with one rule for all layers.
#pragma once
#include <map>
#include <memory>
#include <string>

#include "graph/fake_backend.h"
#include "graph/graph.h"
#include "graph/precisions.h"

namespace ada::graph::test {

using scaling::LayerMethod;

struct BuiltTraining {
  FakeBackend backend;
  config::ModelConfig model;
  std::map<std::string, ScalerRequest> requests;
  std::unique_ptr<Graph> graph;
};

inline std::unique_ptr<BuiltTraining> BuildTraining(const config::ModelConfig& model,
                                                    const Shape& input, bool fuse = true,
                                                    LayerMethod method = LayerMethod::kApproxRange,
                                                    bool stochastic = false) {
  auto built = std::make_unique<BuiltTraining>();
  built->model = model;
  GraphSpec spec;
  spec.model = &built->model;
  spec.precision = Uniform(kFp16);
  spec.precision.stochastic = stochastic;
  spec.input = input;
  spec.fuse = fuse;
  spec.rule_for = [&](const ScalerRequest& request) {
    built->requests.emplace(request.layer, request);
    scaling::LayerRule rule;
    rule.method = method;
    rule.has_weight = request.has_weight;
    return rule;
  };
  built->graph = Graph::Build(spec, built->backend);
  return built;
}

}  // namespace ada::graph::test
