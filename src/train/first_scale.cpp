#include "train/first_scale.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/formulas.h"
#include "core/tensor_names.h"
#include "train/batches.h"

namespace ada::train {
namespace {

// Of one image: `z` are its logits. As the loss op computes it.
double LargestOfRow(const std::vector<float>& z, std::int32_t label, double smoothing,
                    std::int64_t rows) {
  const auto classes = static_cast<std::int64_t>(z.size());
  double highest = -INFINITY, sum = 0, largest = 0;
  for (const float v : z) highest = std::max(highest, static_cast<double>(v));
  for (const float v : z) sum += std::exp(static_cast<double>(v) - highest);
  const double log_sum = highest + std::log(sum);
  for (std::int64_t k = 0; k < classes; ++k) {
    const double log_p = static_cast<double>(z[static_cast<std::size_t>(k)]) - log_sum;
    const double target = backend::TargetOf(k, label, classes, smoothing);
    largest = std::max(largest,
                       std::abs(static_cast<double>(backend::LogitGradient(log_p, target, rows))));
  }
  return largest;
}

}  // namespace

double LargestLogitGradient(const config::Config& config, const RunData& data, graph::Graph& graph,
                            backend::Backend& backend) {
  // On the host, where the labels are read.
  Batches batches(backend, data.train, TrainLoader(config, data), Batches::Residence::kHost);
  backend::Pass pass;
  pass.seed = config.seed;
  pass.loss_terms = batches.Next();
  graph.RefreshWeights(pass);
  const int micro = config.data.batch_size / config.train.accumulate;
  std::vector<float> logits(static_cast<std::size_t>(micro) * graph.classes());
  double largest = 0;
  for (int first = 0; first < pass.loss_terms; first += micro, ++pass.draw) {
    pass.rows = std::min<int>(micro, pass.loss_terms - first);
    const Batches::Rows seen = batches.Feed(graph, first, pass.rows);
    graph.Forward(pass);
    backend.Read(graph.logits(), pass.rows, logits.data());
    for (int row = 0; row < pass.rows; ++row) {
      const auto begin = logits.begin() + static_cast<std::ptrdiff_t>(row) * graph.classes();
      const double of_row = LargestOfRow({begin, begin + graph.classes()}, seen.labels[row],
                                         config.train.label_smoothing, pass.loss_terms);
      if (of_row > largest) largest = of_row;
    }
  }
  return largest;
}

double NarrowestGradient(const graph::Graph& graph) {
  double narrowest = kFp32.largest();
  for (const graph::RoundingPoint& point : graph.roundings())
    if (CarriesS(point.tensor)) narrowest = std::min<double>(narrowest, point.format.largest());
  return narrowest;
}

}  // namespace ada::train
