// The evaluation loop.
#include "train/evaluator.h"

#include "core/error.h"
#include "train/assemble.h"

namespace ada::train {

Evaluator::Evaluator(const config::Config& config, const Shape& image, backend::Backend& backend,
                     const graph::Graph* trained)
    : backend_(backend),
      graph_(graph::Graph::Build(EvaluationGraph(config, image), backend, trained)) {}

EvaluationResult Evaluator::Run(const data::Dataset& dataset, const data::LoaderSpec& spec,
                                const ImageVisitor& visit) {
  ADA_CHECK(!spec.shuffle);
  backend::Pass refresh;
  refresh.training = false;
  graph_->RefreshWeights(refresh);
  data::Loader loader(dataset, spec);
  EvaluationResult result;
  const std::int64_t batches = loader.batches_per_epoch();
  for (std::int64_t i = 0; i < batches; ++i) {
    const data::Batch& batch = loader.Next();
    backend::Pass pass;
    pass.training = false;
    pass.rows = batch.rows;
    pass.loss_rows = batch.rows;
    pass.accumulate = i > 0;  // losses of all batches are added up
    graph_->SetBatch(batch.images.data(), batch.labels.data(), batch.rows);
    graph_->Forward(pass);
    if (visit) Visit(batch, result.images, visit);
    result.images += batch.rows;
  }
  if (result.images == 0) return result;
  const backend::LossResult total = graph_->Result();
  const auto n = static_cast<double>(result.images);
  result.loss = total.loss_sum / n;
  result.top1 = static_cast<double>(total.top1) / n;
  result.top5 = static_cast<double>(total.top5) / n;
  return result;
}

void Evaluator::Visit(const data::Batch& batch, std::int64_t first, const ImageVisitor& visit) {
  const auto classes = static_cast<std::size_t>(graph_->classes());
  const auto rows = static_cast<std::size_t>(batch.rows);
  logits_.resize(rows * classes);
  backend_.Read(graph_->logits(), batch.rows, logits_.data());
  for (std::size_t row = 0; row < rows; ++row) {
    ImageResult result =
        JudgeImage(logits_.data() + row * classes, graph_->classes(), batch.labels[row]);
    result.image = first + static_cast<std::int64_t>(row);
    visit(result);
  }
}

}  // namespace ada::train
