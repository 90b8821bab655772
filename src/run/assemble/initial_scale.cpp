// Finds how large the first gradients of backpropagation are: the scale of the loss then starts as
// large as the format of the gradients allows, without a search. The choice itself is
// scaling::ChooseStart.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "backend/formulas.h"
#include "io/run_in_parallel.h"
#include "io/tensor_names.h"
#include "run/assemble/assemble.h"
#include "step/batches/batches.h"

namespace ada::run {
namespace {

// The largest gradient of an image of a batch, whose logits are `z`, as the loss op computes it.
// second: of the image; empty where images have one label.
double LargestOfRow(const std::vector<float>& z, std::int32_t label, backend::SecondLabels second,
                    double smoothing, std::int64_t rows) {
  const auto classes = static_cast<std::int64_t>(z.size());
  // Softmax by the usual shift: with the largest logit subtracted no exponential overflows.
  double highest = -INFINITY, sum = 0, largest = 0;
  for (const float v : z) highest = std::max(highest, static_cast<double>(v));
  for (const float v : z) sum += std::exp(static_cast<double>(v) - highest);
  const double log_sum = highest + std::log(sum);
  for (std::int64_t k = 0; k < classes; ++k) {
    const double log_p = static_cast<double>(z[static_cast<std::size_t>(k)]) - log_sum;
    const double target = second.labels == nullptr
                              ? backend::TargetOf(k, label, classes, smoothing)
                              : backend::MixedTargetOf(k, label, second.labels[0], second.shares[0],
                                                       classes, smoothing);
    largest = std::max(largest,
                       std::abs(static_cast<double>(backend::LogitGradient(log_p, target, rows))));
  }
  return largest;
}

// For the losses of pixels and boxes, which weight and select terms, only a backward pass
// tells how large their gradients are. Runs the backward pass and reads the gradient's
// largest magnitude from the counts of the loss's rounding. The states of layers' scalers,
// which a backward pass changes, are saved by the constructor and restored by the
// destructor.
class LossGradient {
 public:
  explicit LossGradient(graph::Graph& graph) : graph_(graph) {
    for (const graph::ScalePoint& point : graph.scales())
      if (point.scaler != nullptr) states_.push_back(point.scaler->state);
  }
  ~LossGradient() {
    auto state = states_.begin();
    for (const graph::ScalePoint& point : graph_.scales())
      if (point.scaler != nullptr) point.scaler->state = *state++;
    graph_.SendLayerScalers();
  }
  LossGradient(const LossGradient&) = delete;
  LossGradient& operator=(const LossGradient&) = delete;

  // The largest gradient of the last forward pass, at S = 1.
  double Largest(const backend::Pass& pass) {
    graph_.Backward(pass);
    graph_.Collect(pass);
    double largest = 0;
    for (const graph::RoundingPoint& point : graph_.roundings())
      if (point.layer == "loss" && static_cast<double>(point.stats->max_abs) > largest)
        largest = static_cast<double>(point.stats->max_abs);
    return largest;
  }

 private:
  graph::Graph& graph_;
  std::vector<scaling::LayerState> states_;
};

// Calls `visit(pass, what was fed)` for each micro-batch of a batch of `rows`, or for
// this process's part of it. Feeds micro-batches in the same way as
// Trainer::Gradients, so that the first batch seen here is the one with which training
// starts.
template <class Visit>
void ForMicroBatches(const config::Config& config, step::Batches& batches, graph::Graph& graph,
                     backend::Pass pass, int rows, const step::Team& team, Visit visit) {
  const int micro = config.data.batch_size / config.train.accumulate;
  int fed = 0;
  for (int first = 0; first < rows; first += micro, ++pass.draw) {
    pass.whole_rows = std::min<int>(micro, rows - first);
    const ada::Share part = team.ShareOf(pass.whole_rows);
    pass.rows = static_cast<int>(part.count), pass.first_row = part.first;
    const step::Batches::Rows seen = batches.Feed(graph, fed, pass.rows);
    fed += pass.rows;
    graph.Forward(pass);
    visit(pass, seen);
  }
}

}  // namespace

double LargestLogitGradient(const config::Config& config, const RunData& data, graph::Graph& graph,
                            backend::Backend& backend, step::Team& team) {
  // On the host, because the labels are read here.
  const std::unique_ptr<step::Batches> made = step::MakeBatchesOfTeam(
      backend, data.train, TrainLoader(config, data), step::Residence::kHost, config, team, 1);
  step::Batches& batches = *made;
  backend::Pass pass;
  pass.seed = config.seed;
  batches.Next();
  const int rows = batches.whole_rows();
  const std::vector<std::int64_t> terms = parallel::GatherAll(team.all(), batches.terms());
  pass.loss_terms = std::accumulate(terms.begin(), terms.end(), std::int64_t{0});
  graph.RefreshWeights(pass);
  double largest = 0;
  if (config.task != Task::kClassification) {
    LossGradient gradient(graph);
    ForMicroBatches(config, batches, graph, pass, rows, team,
                    [&](const backend::Pass& now, const step::Batches::Rows&) {
                      largest = std::max(largest, gradient.Largest(now));
                    });
    return backend::LargestOfAll(team.all(), largest);
  }
  std::vector<float> logits;
  ForMicroBatches(config, batches, graph, pass, rows, team,
                  [&](const backend::Pass& now, const step::Batches::Rows& seen) {
                    logits.resize(static_cast<std::size_t>(now.rows) * graph.classes());
                    backend.Read(graph.logits(), now.rows, logits.data());
                    for (int row = 0; row < now.rows; ++row) {
                      const auto begin =
                          logits.begin() + static_cast<std::ptrdiff_t>(row) * graph.classes();
                      const double of_row = LargestOfRow(
                          {begin, begin + graph.classes()}, seen.targets.labels[row],
                          seen.targets.second.From(row), config.train.label_smoothing, rows);
                      if (of_row > largest) largest = of_row;
                    }
                  });
  return backend::LargestOfAll(team.all(), largest);
}

// Operands do not count: they are rounded copies inside a matmul, smaller than what is stored.
double NarrowestGradient(const graph::Graph& graph) {
  double narrowest = kFp32.largest();
  for (const graph::RoundingPoint& point : graph.roundings())
    if (CarriesS(point.tensor) && !IsOperand(point.tensor))
      narrowest = std::min<double>(narrowest, point.format.largest());
  return narrowest;
}

}  // namespace ada::run
