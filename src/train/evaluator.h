// Loss and hits of the present weights on a data set, with running statistics and no dropout.
#pragma once
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "graph/graph.h"

namespace ada::train {

struct EvaluationResult {
  std::int64_t images = 0;
  double loss = 0, top1 = 0, top5 = 0;
};

class Evaluator {
 public:
  // `trained` may be null: then the evaluator's own graph holds the parameters.
  Evaluator(const config::Config& config, const Shape& image, backend::Backend& backend,
            const graph::Graph* trained);
  // Every image once, the tail included.
  EvaluationResult Run(const data::Dataset& dataset, const data::LoaderSpec& spec);
  graph::Graph& graph() { return *graph_; }

 private:
  std::unique_ptr<graph::Graph> graph_;
};

}  // namespace ada::train
