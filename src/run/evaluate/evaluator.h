// Loss and hits of the current weights on a data set and on its single images, with running
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
#include "run/metrics/metrics.h"
#include "step/batches/batches.h"
#include "step/team.h"

namespace ada::run {

// A network's prediction for one image, made from the same logits as the loss.
struct ImageResult {
  std::int64_t image = 0;  // in its split, from 0, in the order of the files
  std::int32_t label = 0;
  std::int32_t prediction = -1;  // the largest logit, the first of equal ones; -1: all are NaN
  double probability = 0, label_probability = 0;  // softmax, of the prediction and of the label
  double loss = 0;                                // cross-entropy, not smoothed
  // The rank of the label among the logits, from 1: how many are larger, or equal with a lower
  // index, plus one; 1 is a top-1 hit, up to 5 a top-5 hit. 0: its logit is NaN, which is neither.
  std::int64_t rank = 0;
  std::span<const float> logits;  // one for each class; valid during the visit
};
using ImageVisitor = std::function<void(const ImageResult&)>;
// Called with the network's first output for an image, unchanged.
using OutputVisitor = std::function<void(std::int64_t image, std::span<const float> values)>;
// Called with the number of images that have been handed to the backend so far.
using BatchVisitor = std::function<void(std::int64_t images)>;
// Called with the prediction for an image, in the image's own pixels, and the network's outputs.
using PredictionVisitor = std::function<void(std::int64_t image, const Prediction& prediction,
                                             const std::vector<const float*>& outputs)>;

// Callbacks during the evaluation of a split. If one is set that needs outputs, they are read back
// from the backend, image by image in the data set's order.
struct EvaluationCallbacks {
  ImageVisitor visit = {};            // classification
  OutputVisitor outputs = {};         // language
  Metrics* metrics = nullptr;         // the other tasks
  PredictionVisitor prediction = {};  // of the metrics
  BatchVisitor after_batch = {};
};

// Computes the result from `classes` fp32 logits in double. label is in 0..classes-1.
ImageResult ResultOf(const float* logits, int classes, std::int32_t label);

// Totals over all processes, except for `broken`, which is each one's own. Without images the loss
// is 0 and the hits are NaN.
struct EvaluationResult {
  std::int64_t images = 0;
  // Mean over images, labeled pixels, boxes with an object, tokens with a target.
  double loss = 0;
  double location_loss = 0;                    // detection: the part that comes from box locations
  double top1 = NAN, top5 = NAN;               // classification, language
  std::vector<data::BrokenImage> broken = {};  // left out
};

// Merges the metrics of all processes, each of which has seen its own part of the images, into
// those of the first.
void JoinMetrics(step::Team& team, Metrics& metrics);

// Owns a graph that does not train, on the parameters of the trained graph where one is given (they
// are shared, not copied, so an evaluation always sees the present weights). A session has one for
// its weights and one within WeightAverage.
class Evaluator {
 public:
  // `trained` may be null: then the evaluator's own graph holds the parameters.
  Evaluator(const config::Config& config, const Shape& image, backend::Backend& backend,
            const graph::Graph* trained);
  // Passes every image once, including those of a smaller last batch. `spec` must not shuffle. The
  // data set must outlive the evaluator, unchanged: a backend that accepts it keeps it. Each
  // process of a team evaluates a part of the batches, a consecutive range; losses and hits are
  // those of all processes, broken images and callbacks are each process's own.
  EvaluationResult Run(const data::Dataset& dataset, const data::LoaderSpec& spec,
                       const EvaluationCallbacks& callbacks = {},
                       step::Team& team = step::Team::OfOne());
  graph::Graph& graph() { return *graph_; }

 private:
  step::Batches& BatchesOf(const data::Dataset& dataset, const data::LoaderSpec& spec);
  // Passes the images of the last forward pass to `visit`.
  void Visit(const data::Dataset& dataset, const step::Batches& batches, int rows,
             const ImageVisitor& visit);
  void Judged(const step::Batches& batches, int rows, const EvaluationCallbacks& callbacks);
  void ShowOutputs(const step::Batches& batches, int rows, const OutputVisitor& visit);
  void ReadOutputs(int rows);

  backend::Backend& backend_;
  Task task_;
  std::unique_ptr<graph::Graph> graph_;
  std::map<const data::Dataset*, std::unique_ptr<step::Batches>> batches_;
  std::vector<std::vector<float>> outputs_;  // of the last batch whose outputs were read
};

}  // namespace ada::run
