// Used by sessions during a run and by the evaluate command. Batches come in the data set's order,
// and losses are added up in it.
#include "run/evaluate/evaluator.h"

#include <algorithm>
#include <cmath>

#include "error.h"
#include "io/run_in_parallel.h"
#include "run/assemble/assemble.h"
#include "step/batches/batches.h"
#include "step/specs.h"

namespace ada::run {

// Comparisons with NaN are false: a NaN is never the prediction while another logit is a number,
// and never counts as better than the label.
ImageResult ResultOf(const float* logits, int classes, std::int32_t label) {
  ADA_CHECK(label >= 0 && label < classes);
  ImageResult result;
  result.label = label;
  const float of_label = logits[label];
  double highest = -INFINITY;
  std::int64_t better = 0;
  for (int k = 0; k < classes; ++k) {
    const float z = logits[k];
    highest = std::max(highest, static_cast<double>(z));
    if (result.prediction < 0 ? !std::isnan(z) : z > logits[result.prediction])
      result.prediction = k;
    better += z > of_label || (z == of_label && k < label) ? 1 : 0;
  }
  double sum = 0;
  for (int k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(logits[k]) - highest);
  const double log_sum = highest + std::log(sum);
  const auto log_probability = [&](std::int32_t k) {
    return static_cast<double>(logits[k]) - log_sum;
  };
  result.probability = result.prediction < 0 ? NAN : std::exp(log_probability(result.prediction));
  result.label_probability = std::exp(log_probability(label));
  result.loss = -log_probability(label);
  result.rank = std::isnan(of_label) ? 0 : better + 1;
  return result;
}

Evaluator::Evaluator(const config::Config& config, const Shape& image, backend::Backend& backend,
                     const graph::Graph* trained)
    : backend_(backend),
      task_(config.task),
      graph_(graph::Graph::Build(step::EvaluationGraph(config, image), backend, trained)) {}

// Batches are kept from one evaluation to the next only where the backend holds the data set; a
// loader's are dropped at the end of each Run, since its threads and buffers would lie idle.
step::Batches& Evaluator::BatchesOf(const data::Dataset& dataset, const data::LoaderSpec& spec) {
  std::unique_ptr<step::Batches>& kept = batches_[&dataset];
  if (!kept) kept = step::MakeBatches(backend_, dataset, spec);
  kept->Seek(0, 0);
  return *kept;
}

// Collective. Ranks are appended in their order, which is the order of the images.
void JoinMetrics(step::Team& team, Metrics& metrics) {
  const std::vector<std::string> all = team.AllGatherText(team.writes() ? "" : metrics.Save());
  if (!team.writes()) return;
  for (std::size_t rank = 1; rank < all.size(); ++rank) metrics.Append(all[rank]);
}

// Collective if `team` has several processes. Each gets whole batches, so that results do not
// depend on how batches are split.
EvaluationResult Evaluator::Run(const data::Dataset& dataset, const data::LoaderSpec& spec,
                                const EvaluationCallbacks& callbacks, step::Team& team) {
  ADA_CHECK(!spec.shuffle);
  backend::Pass pass;
  pass.training = false;
  graph_->RefreshWeights(pass);
  step::Batches& batches = BatchesOf(dataset, spec);
  EvaluationResult result;
  std::int64_t terms = 0;
  const ada::Share part = team.ShareOf(batches.batches_per_epoch());
  if (part.first > 0 && part.count > 0) batches.Seek(0, part.first);
  for (std::int64_t i = 0; i < part.count; ++i) {
    pass.rows = batches.Next();
    for (const data::BrokenImage& broken : batches.broken()) result.broken.push_back(broken);
    if (pass.rows == 0) continue;
    pass.loss_terms = batches.terms();
    pass.accumulate = result.images > 0;  // losses of all batches are added up
    batches.Feed(*graph_, 0, pass.rows);
    graph_->Forward(pass);
    if (callbacks.visit) Visit(dataset, batches, pass.rows, callbacks.visit);
    if (callbacks.outputs) ShowOutputs(batches, pass.rows, callbacks.outputs);
    if (callbacks.metrics != nullptr) Judged(batches, pass.rows, callbacks);
    result.images += pass.rows;
    terms += pass.loss_terms;
    if (callbacks.after_batch) callbacks.after_batch(result.images);
  }
  if (!batches.resident()) batches_.erase(&dataset);  // with its threads
  struct ProcessLoss {
    backend::LossResult loss;
    std::int64_t images, terms;
  };
  // A process without images has no loss to read: its graph may not have run at all.
  const ProcessLoss mine{result.images > 0 ? graph_->Result() : backend::LossResult(),
                         result.images, terms};
  backend::LossResult total;
  result.images = terms = 0;
  for (const ProcessLoss& one : parallel::GatherAll(team.all(), mine)) {
    total.Add(one.loss);
    result.images += one.images, terms += one.terms;
  }
  if (result.images == 0 && !result.broken.empty())
    throw DataError("none of the images that are evaluated can be read; the first: " +
                    result.broken.front().message);
  // An empty data set is no error; its loss and hits stay as they are in an empty result.
  if (result.images == 0) return result;
  if (task_ == Task::kLanguage && terms == 0)
    throw DataError(dataset.tokens->files().front() +
                    ": no token of the sequences that are evaluated has a target; expected one or "
                    "more that are not -100");
  const auto n = static_cast<double>(std::max<std::int64_t>(terms, 1));
  result.loss = total.loss_sum / n;
  result.location_loss = total.location_sum / n;
  if (MeasuresClasses(task_)) return result;
  result.top1 = static_cast<double>(total.top1) / n;
  result.top5 = static_cast<double>(total.top5) / n;
  return result;
}

// Labels come from the data set, which has them for every image even if batches are made on the
// device.
void Evaluator::Visit(const data::Dataset& dataset, const step::Batches& batches, int rows,
                      const ImageVisitor& visit) {
  const auto classes = static_cast<std::size_t>(graph_->classes());
  ReadOutputs(rows);
  const float* logits = outputs_.front().data();
  for (int row = 0; row < rows; ++row) {
    const std::int64_t image = batches.NumberOf(row);
    ImageResult result =
        ResultOf(logits + static_cast<std::size_t>(row) * classes, graph_->classes(),
                 dataset.labels[static_cast<std::size_t>(image)]);
    result.image = image;
    result.logits = {logits + static_cast<std::size_t>(row) * classes, classes};
    visit(result);
  }
}

void Evaluator::ShowOutputs(const step::Batches& batches, int rows, const OutputVisitor& visit) {
  ReadOutputs(rows);
  const auto values = static_cast<std::size_t>(graph_->outputs().front().shape.per_image());
  for (int row = 0; row < rows; ++row)
    visit(batches.NumberOf(row),
          {outputs_.front().data() + static_cast<std::size_t>(row) * values, values});
}

void Evaluator::ReadOutputs(int rows) {
  outputs_.resize(graph_->outputs().size());
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    const Tensor& output = graph_->outputs()[i];
    outputs_[i].resize(static_cast<std::size_t>(rows * output.shape.per_image()));
    backend_.Read(output, rows, outputs_[i].data());
  }
}

void Evaluator::Judged(const step::Batches& batches, int rows,
                       const EvaluationCallbacks& callbacks) {
  ReadOutputs(rows);
  std::vector<const float*> of_image(outputs_.size());
  for (int row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < outputs_.size(); ++i)
      of_image[i] = outputs_[i].data() + row * graph_->outputs()[i].shape.per_image();
    const std::int64_t image = batches.NumberOf(row);
    const Prediction prediction = callbacks.metrics->Add(image, of_image);
    if (callbacks.prediction) callbacks.prediction(image, prediction, of_image);
  }
}

}  // namespace ada::run
