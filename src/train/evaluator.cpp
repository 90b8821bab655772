// The evaluation loop.
#include "train/evaluator.h"

#include "train/assemble.h"

namespace ada::train {

Evaluator::Evaluator(const config::Config& config, const Shape& image, backend::Backend& backend,
                     const graph::Graph* trained)
    : graph_(graph::Graph::Build(EvaluationGraph(config, image), backend, trained)) {}

EvaluationResult Evaluator::Run(const data::Dataset& dataset, const data::LoaderSpec& spec) {
  backend::Pass refresh;
  refresh.training = false;
  graph_->RefreshWeights(refresh);
  data::Loader loader(dataset, spec);
  backend::LossResult total;
  EvaluationResult result;
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t i = 0; i < batches; ++i) {
    const data::Batch& batch = loader.Next();
    backend::Pass pass;
    pass.training = false;
    pass.rows = batch.rows;
    pass.loss_rows = batch.rows;
    graph_->SetBatch(batch.images.data(), batch.labels.data(), batch.rows);
    graph_->Forward(pass);
    const backend::LossResult loss = graph_->Result();
    total.loss_sum += loss.loss_sum;
    total.top1 += loss.top1;
    total.top5 += loss.top5;
    result.images += batch.rows;
  }
  const auto n = static_cast<double>(result.images);
  if (result.images == 0) return result;
  result.loss = total.loss_sum / n;
  result.top1 = static_cast<double>(total.top1) / n;
  result.top5 = static_cast<double>(total.top5) / n;
  return result;
}

}  // namespace ada::train
