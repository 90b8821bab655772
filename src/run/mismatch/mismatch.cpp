// Graphs of both sides share one set of weights, and twins have their own. For each layer there is
// a graph in which it alone rounds.
#include "run/mismatch/mismatch.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "error.h"
#include "graph/graph.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/weights.h"
#include "run/fork/fork.h"
#include "run/plan/plan_reports.h"
#include "step/batches/batches.h"
#include "step/specs.h"

namespace ada::run {
namespace {

using Graphs = std::unique_ptr<graph::Graph>;

// The precision in which all but one layer is fp32.
graph::Precision OnlyOf(const graph::Precision& whole, const std::string& layer) {
  graph::Precision only = whole;
  const graph::LayerFormats fp32 = {kFp32, kFp32, kFp32, kFp32};
  only.base = fp32;
  only.formats_of = [whole, layer, fp32](const std::string& name) {
    if (name != layer) return fp32;
    return whole.formats_of ? whole.formats_of(name) : whole.base;
  };
  if (whole.formats_from)
    only.formats_from = [whole, layer, fp32](const std::string& name,
                                             const graph::LayerFormats& start) {
      return name == layer ? whole.formats_from(name, start) : fp32;
    };
  if (whole.operands_of)
    only.operands_of = [whole, layer](const std::string& name, bool spared) {
      return name == layer ? whole.operands_of(name, spared) : graph::LayerOperands();
    };
  if (whole.accumulators_of)
    only.accumulators_of = [whole, layer](const std::string& name, bool spared) {
      return name == layer ? whole.accumulators_of(name, spared) : scaling::Accumulators();
    };
  return only;
}

// Keeps outputs y of layers, as they appear.
class OutputKeeper : public graph::TensorObserver {
 public:
  OutputKeeper(backend::Backend& backend, const std::vector<std::string>& layers)
      : backend_(backend) {
    for (const std::string& layer : layers) outputs[layer];
  }
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override {
    const auto found = outputs.find(seen.layer);
    if (seen.tensor != "y" || found == outputs.end()) return;
    found->second.resize(static_cast<std::size_t>(pass.rows * seen.value.shape.per_image()));
    backend_.Read(seen.value, pass.rows, found->second.data());
  }
  std::map<std::string, std::vector<float>> outputs;

 private:
  backend::Backend& backend_;
};

// |a - b| / |reference|; 0 where there is nothing to compare.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b,
                     const std::vector<float>& reference) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size() && i < reference.size(); ++i) {
    const double difference = static_cast<double>(a[i]) - b[i];
    error += difference * difference;
    size += static_cast<double>(reference[i]) * reference[i];
  }
  return size > 0 ? std::sqrt(error / size) : 0;
}

// The mean over rows of the KL divergence of softmax(b) from softmax(a), in nats.
double MeanDivergence(const std::vector<float>& a, const std::vector<float>& b,
                      std::size_t classes) {
  double sum = 0;
  for (std::size_t row = 0; row + classes <= a.size(); row += classes) {
    const auto of_a = std::span(a).subspan(row, classes), of_b = std::span(b).subspan(row, classes);
    sum += Divergence(of_a, LogSum(of_a), of_b, LogSum(of_b));
  }
  return a.empty() ? 0 : sum / (static_cast<double>(a.size()) / static_cast<double>(classes));
}

class MismatchFinder {
 public:
  MismatchFinder(const MismatchSpec& spec, const MismatchVisitor& visit, telemetry::Log& log)
      : spec_(spec),
        visit_(visit),
        log_(log),
        chosen_(MakeBackend(spec.config.device)),
        backend_(*chosen_.backend) {}

  std::vector<LayerMismatch> Run() {
    if (MeasuresClasses(spec_.config.task))
      throw ConfigError(
          "task: mismatch compares predictions of classification and language models");
    const data::DatasetInfo info = InspectData(spec_.config);
    config_ = Completed(spec_.config, info);
    image_ = {1, info.height, info.width, info.channels};
    const RunData data = ReadData(config_, info);
    const data::Dataset& dataset = data.test.images() > 0 ? data.test : data.validation;
    if (dataset.images() == 0)
      throw ConfigError("data: no split is held out; expected test data, or data.validation");
    for (std::size_t side = 0; side < 2; ++side) CheckScales(spec_.precision[side]);
    LoadSides();
    data::LoaderSpec loader = EvaluationLoader(config_, data);
    const auto batches = step::MakeBatches(backend_, dataset, loader, step::Residence::kHost);
    batches->Seek(0, 0);
    std::vector<LayerMismatch> layers;
    std::int64_t done = 0;
    for (std::int64_t i = 0; i < batches->batches_per_epoch() && done < spec_.samples; ++i) {
      pass_.rows = batches->Next();
      pass_.rows = static_cast<int>(std::min<std::int64_t>(pass_.rows, spec_.samples - done));
      if (pass_.rows == 0) continue;
      pass_.loss_terms = std::max<std::int64_t>(1, batches->terms());
      if (done == 0 && spec_.layers) layers = Layers(*batches);
      ShowBatch(*batches);
      done += pass_.rows;
      log_.SetStatus("mismatch: " + std::to_string(done) + " samples");
    }
    log_.SetStatus("");
    return layers;
  }

 private:
  static void CheckScales(const config::PrecisionConfig& precision) {
    using Kind = config::TensorScalingConfig::Kind;
    const auto& operands = precision.operands.tensor_scaling;
    if (precision.tensor_scaling.kind == Kind::kDelayed ||
        (operands && (operands->kind == Kind::kDelayed || operands->kind == Kind::kPredicted)))
      throw ConfigError(
          "precision: tensor_scaling delayed and predicted take scales from earlier steps of a "
          "training; mismatch needs scales of the values themselves (current, row, static, or "
          "none)");
  }

  graph::GraphSpec SpecOf(const config::PrecisionConfig& precision) const {
    config::Config config = config_;
    config.precision = precision;
    graph::GraphSpec spec = step::EvaluationGraph(config, image_);
    spec.model = &config_.model;  // which outlives the copy
    spec.fuse = false;            // every y is stored; it changes no bit
    return spec;
  }
  Graphs Build(const graph::GraphSpec& spec, const graph::Graph* share) const {
    return graph::Graph::Build(spec, backend_, share);
  }

  void LoadSides() {
    config::PrecisionConfig fp32;
    reference_ = Build(SpecOf(fp32), nullptr);
    Load(*reference_);
    for (std::size_t side = 0; side < 2; ++side) {
      sides_[side] = Build(SpecOf(spec_.precision[side]), reference_.get());
      // Parameters are moved where they have gradients, which a graph that trains allocates.
      graph::GraphSpec trains = SpecOf(spec_.precision[side]);
      trains.training = true;
      moved_[side] = Build(trains, nullptr);
      Load(*moved_[side]);
      ForkSpec twin;
      twin.twin = 1;
      for (const ForkLayer& layer : LayersOf(config_, image_, spec_.precision[side]))
        twin.units[layer.name] = layer.unit;
      MoveWeights(twin, *moved_[side], backend_);
      twins_[side] = Build(SpecOf(spec_.precision[side]), moved_[side].get());
    }
    for (std::size_t side = 0; side < 2; ++side)
      for (const std::string& line : PrecisionWarnings(spec_.precision[side], *moved_[side]))
        log_.Warning(line);
    for (graph::Graph* graph :
         {reference_.get(), sides_[0].get(), sides_[1].get(), twins_[0].get(), twins_[1].get()})
      graph->RefreshWeights(pass_);
  }
  void Load(graph::Graph& graph) {
    if (spec_.weights.empty())
      graph::Initialize(graph, config_.model.init, config_.seed, backend_);
    else
      LoadEvaluatedWeights(spec_.weights, EvaluatesAverage(config_), graph, backend_, log_);
  }

  // The outputs of a graph for the rows of the present batch.
  std::vector<float> Outputs(graph::Graph& graph, step::Batches& batches,
                             graph::TensorObserver* observer = nullptr) {
    rows_ = batches.Feed(graph, 0, pass_.rows);
    graph.Forward(pass_, observer);
    std::vector<float> values(
        static_cast<std::size_t>(pass_.rows * graph.logits().shape.per_image()));
    backend_.Read(graph.logits(), pass_.rows, values.data());
    return values;
  }

  void ShowBatch(step::Batches& batches) {
    std::array<std::vector<float>, 2> logits, twins;
    for (std::size_t side = 0; side < 2; ++side) {
      logits[side] = Outputs(*sides_[side], batches);
      twins[side] = Outputs(*twins_[side], batches);
    }
    const Shape& shape = sides_[0]->logits().shape;
    MismatchSample sample;
    sample.classes = shape.c;
    sample.positions = shape.per_image() / shape.c;
    const auto per_image = static_cast<std::size_t>(shape.per_image());
    const auto positions = static_cast<std::size_t>(sample.positions);
    for (std::size_t row = 0; row < static_cast<std::size_t>(pass_.rows); ++row) {
      for (std::size_t side = 0; side < 2; ++side) {
        sample.logits[side] =
            std::span<const float>(logits[side]).subspan(row * per_image, per_image);
        sample.twins[side] =
            std::span<const float>(twins[side]).subspan(row * per_image, per_image);
      }
      if (rows_.targets.labels != nullptr)
        sample.targets = {rows_.targets.labels + row * positions, positions};
      visit_(sample);
    }
  }

  // Those that round anything on one of the sides, in the network's order.
  std::vector<std::string> RoundingLayers() const {
    std::vector<std::string> names;
    std::array<std::vector<ForkLayer>, 2> all;
    for (std::size_t side = 0; side < 2; ++side)
      all[side] = LayersOf(config_, image_, spec_.precision[side]);
    for (std::size_t i = 0; i < all[0].size(); ++i) {
      bool rounds = false;
      for (std::size_t side = 0; side < 2; ++side) {
        const ForkLayer& layer = all[side][i];
        rounds = rounds || layer.activations != kFp32 || layer.weights != kFp32 ||
                 layer.narrowest != kFp32 ||
                 (layer.has_weight && spec_.precision[side].accumulates());
      }
      if (rounds) names.push_back(all[0][i].name);
    }
    return names;
  }

  std::vector<LayerMismatch> Layers(step::Batches& batches) {
    const std::vector<std::string> names = RoundingLayers();
    OutputKeeper exact(backend_, names);
    const std::vector<float> logits = Outputs(*reference_, batches, &exact);
    const auto classes = static_cast<std::size_t>(reference_->logits().shape.c);
    std::array<OutputKeeper, 2> whole = {OutputKeeper(backend_, names),
                                         OutputKeeper(backend_, names)};
    for (std::size_t side = 0; side < 2; ++side) Outputs(*sides_[side], batches, &whole[side]);
    std::vector<LayerMismatch> layers;
    for (const std::string& name : names) {
      log_.SetStatus("mismatch: layer " + name);
      LayerMismatch& layer = layers.emplace_back();
      layer.layer = name;
      layer.apart =
          RelativeError(whole[0].outputs[name], whole[1].outputs[name], exact.outputs[name]);
      for (std::size_t side = 0; side < 2; ++side) {
        graph::GraphSpec spec = SpecOf(spec_.precision[side]);
        spec.precision = OnlyOf(spec.precision, name);
        const Graphs only = Build(spec, reference_.get());
        only->RefreshWeights(pass_);
        OutputKeeper own(backend_, {name});
        const std::vector<float> changed = Outputs(*only, batches, &own);
        layer.alone[side] = MeanDivergence(logits, changed, classes);
        layer.adds[side] =
            RelativeError(own.outputs[name], exact.outputs[name], exact.outputs[name]);
        layer.total[side] =
            RelativeError(whole[side].outputs[name], exact.outputs[name], exact.outputs[name]);
        layer.inherits[side] = std::sqrt(std::max(
            0.0, layer.total[side] * layer.total[side] - layer.adds[side] * layer.adds[side]));
      }
    }
    return layers;
  }

  static backend::Pass EvaluationPass() {
    backend::Pass pass;
    pass.training = false;
    return pass;
  }

  const MismatchSpec& spec_;
  const MismatchVisitor& visit_;
  telemetry::Log& log_;
  ChosenBackend chosen_;
  backend::Backend& backend_;
  config::Config config_;
  Shape image_{};
  backend::Pass pass_ = EvaluationPass();
  step::Batches::Rows rows_;
  Graphs reference_;
  std::array<Graphs, 2> moved_, sides_, twins_;
};

}  // namespace

double LogSum(std::span<const float> logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return top + std::log(sum);
}

double Divergence(std::span<const float> a, double log_sum_a, std::span<const float> b,
                  double log_sum_b) {
  double divergence = 0;
  for (std::size_t k = 0; k < a.size(); ++k) {
    const double log_a = a[k] - log_sum_a, p = std::exp(log_a);
    if (p > 0) divergence += p * (log_a - (b[k] - log_sum_b));
  }
  return divergence;
}

std::vector<LayerMismatch> FindMismatch(const MismatchSpec& spec, const MismatchVisitor& visit,
                                        telemetry::Log& log) {
  return MismatchFinder(spec, visit, log).Run();
}

}  // namespace ada::run
