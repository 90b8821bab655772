// Loss and hits of the present weights on a data set and on its single images, with running
// statistics and no dropout.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "train/batches/batches.h"
#include "train/distributed/team.h"
#include "train/metrics/metrics.h"

namespace ada::train {

// A network's prediction for one image: the same view of its logits that the loss takes.
struct ImageResult {
  std::int64_t image = 0;  // in its split, from 0, in the order of the files
  std::int32_t label = 0;
  std::int32_t prediction = -1;  // the largest logit, the first of equals; -1: all are NaN
  double probability = 0, label_probability = 0;  // softmax, of the prediction and of the label
  double loss = 0;                                // cross-entropy, not smoothed
  // The rank of the label among the logits, from 1: how many are larger, or equal with a lower
  // index, plus one; 1 is a top-1 hit, up to 5 a top-5 hit. 0: its logit is NaN, which is neither.
  std::int64_t rank = 0;
  std::span<const float> logits;  // one a class; valid while it is visited
};
using ImageVisitor = std::function<void(const ImageResult&)>;
// It is shown the first output of the network for an image, as it stands.
using OutputVisitor = std::function<void(std::int64_t image, std::span<const float> values)>;
// It is told how many images have been handed to the backend so far.
using BatchVisitor = std::function<void(std::int64_t images)>;
// It is shown the network's prediction for an image, in the image's own pixels, and its outputs.
using PredictionVisitor = std::function<void(std::int64_t image, const Prediction& prediction,
                                             const std::vector<const float*>& outputs)>;

// Callbacks while a split is evaluated; for those that are set outputs are read back from the
// backend, image by image in the data set's order.
struct EvaluationCallbacks {
  ImageVisitor visit = {};            // classification
  OutputVisitor outputs = {};         // language
  Metrics* metrics = nullptr;         // the other tasks
  PredictionVisitor prediction = {};  // of the metrics
  BatchVisitor after_batch = {};
};

// The result for `classes` logits in fp32, in double arithmetic. label is in 0..classes-1.
ImageResult ResultOf(const float* logits, int classes, std::int32_t label);

// What all processes found together; `broken` is each one's own. Without images the loss is 0 and
// hits are NaN.
struct EvaluationResult {
  std::int64_t images = 0;
  // Mean over images, labeled pixels, boxes with an object, tokens with a target.
  double loss = 0;
  double location_loss = 0;                    // detection: its part that is of locations
  double top1 = NAN, top5 = NAN;               // classification, language
  std::vector<data::BrokenImage> broken = {};  // left out
};

// Joins the metrics of all processes, each of which has seen the images of its part, into those of
// the first.
void JoinMetrics(Team& team, Metrics& metrics);

// Owns a graph that does not train, on the parameters of the trained graph where one is given (they
// are shared, not copied, so an evaluation always sees the present weights). A session has one for
// its weights and one within WeightAverage.
class Evaluator {
 public:
  // `trained` may be null: then the evaluator's own graph holds the parameters.
  Evaluator(const config::Config& config, const Shape& image, backend::Backend& backend,
            const graph::Graph* trained);
  // Every image once, the tail included. `spec` must not shuffle. The data set must outlive the
  // evaluator, unchanged: where the backend takes it, it keeps it. Each process of a
  // team takes a part of the batches, one after the other in their order; losses and hits
  // become those of all, what is broken and the callbacks stay each process's own.
  EvaluationResult Run(const data::Dataset& dataset, const data::LoaderSpec& spec,
                       const EvaluationCallbacks& callbacks = {}, Team& team = Team::OfOne());
  graph::Graph& graph() { return *graph_; }

 private:
  Batches& BatchesOf(const data::Dataset& dataset, const data::LoaderSpec& spec);
  // Passes the images of the last forward pass to `visit`.
  void Visit(const data::Dataset& dataset, const Batches& batches, int rows,
             const ImageVisitor& visit);
  void Judged(const Batches& batches, int rows, const EvaluationCallbacks& callbacks);
  void ShowOutputs(const Batches& batches, int rows, const OutputVisitor& visit);
  void ReadOutputs(int rows);

  backend::Backend& backend_;
  Task task_;
  std::unique_ptr<graph::Graph> graph_;
  std::map<const data::Dataset*, std::unique_ptr<Batches>> batches_;
  std::vector<std::vector<float>> outputs_;  // of the last batch that was looked at
};

}  // namespace ada::train
