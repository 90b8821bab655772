// Loss and hits of the present weights on a data set, with running statistics and no dropout.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "train/batches.h"
#include "train/image_result.h"

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
  // Every image once, the tail included. `spec` must not shuffle. `visit`, where there is one, is
  // called for each image in the data set's order; then logits are read back from the backend. The
  // data set must outlive the evaluator, unchanged: where the backend takes it, it keeps it.
  EvaluationResult Run(const data::Dataset& dataset, const data::LoaderSpec& spec,
                       const ImageVisitor& visit = {});
  graph::Graph& graph() { return *graph_; }

 private:
  Batches& BatchesOf(const data::Dataset& dataset, const data::LoaderSpec& spec);
  // Judges the images of the last forward pass: `rows` from `first` on.
  void Visit(const data::Dataset& dataset, std::int64_t first, int rows, const ImageVisitor& visit);

  backend::Backend& backend_;
  std::unique_ptr<graph::Graph> graph_;
  std::map<const data::Dataset*, std::unique_ptr<Batches>> batches_;
  std::vector<float> logits_;  // of the last batch that was visited
};

}  // namespace ada::train
