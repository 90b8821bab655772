// Every model of the zoo at a size for tests, and whole steps of it: forward, backward and update
// of a batch in two micro-batches.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "graph/network/zoo.h"
#include "number/random.h"

namespace ada::run {

using Floats = std::vector<float>;

struct Net {
  std::string name;
  config::ModelConfig model;
  Shape input;  // n: images of the larger micro-batch
  Task task = Task::kClassification;
};
inline bool IsForImageNet(const std::string& zoo) {
  static const std::vector<std::string> names = {"resnet18", "resnet34", "resnet50", "mobilenet_v2",
                                                 "densenet121"};
  return std::find(names.begin(), names.end(), zoo) != names.end();
}
// Small images and batches that no block divides: 7 or 3 images, then 4 or 2. DenseNet's pools
// round down: of smaller images one pixel would be left, and a batch norm of two values is their
// sign, whose gradients of any size (1e6 to 1e9, by the order of sums) end in NaN. `deep`: those
// that hold the layers of the others more often. Without those that hold the layers of deep ones
// more often still.
inline std::vector<Net> Nets(bool deep) {
  std::vector<Net> nets;
  for (const std::string& zoo : graph::ZooNames()) {
    config::ModelConfig model;
    model.zoo = zoo;
    // Those of sequences are compared by tests/graph/sequences_graph_test.cpp.
    if (zoo.starts_with("gpt2") || zoo.starts_with("llama") || zoo.starts_with("vit")) continue;
    if (zoo.starts_with("ssd")) {
      model.width = 0.25, model.batch_norm = true;
      nets.push_back({zoo, model, {1, 300, 300, 3}, Task::kDetection});
      continue;
    }
    if (zoo.starts_with("segnet")) {
      model.width = 0.25;
      nets.push_back({zoo, model, {3, 26, 38, 3}, Task::kSegmentation});
      continue;
    }
    const bool vgg = zoo.starts_with("vgg");
    const bool resnet = zoo.find("resnet") != std::string::npos;
    nets.push_back({zoo, model,
                    zoo == "densenet121" ? Shape{3, 67, 70, 3}
                    : IsForImageNet(zoo) ? Shape{3, 43, 37, 3}
                    : vgg                ? Shape{3, 32, 32, 3}
                    : resnet             ? Shape{7, 12, 14, 3}
                                         : Shape{7, 28, 28, 1}});
  }
  config::ModelConfig projection, dropped;
  projection.zoo = "resnet20", projection.shortcut = "B";
  dropped.zoo = "vgg11", dropped.dropout = 0.25;
  nets.push_back({"resnet20 B", projection, {7, 9, 11, 3}});
  nets.push_back({"vgg11 dropout", dropped, {2, 32, 32, 3}});
  config::ModelConfig reference = projection, plain = dropped;
  reference.shortcut = "reference", plain.plain = true;
  nets.push_back({"resnet20 reference", reference, {7, 9, 11, 3}});
  nets.push_back({"vgg11 plain dropout", plain, {2, 32, 32, 3}});
  std::erase_if(nets, [](const Net& net) {
    static const std::vector<std::string> huge = {
        "preresnet32", "preresnet44",     "preresnet56",      "preresnet110", "resnet101",
        "resnet152",   "wide_resnet50_2", "wide_resnet28_10", "ssd512"};
    return std::find(huge.begin(), huge.end(), net.name) != huge.end();
  });
  std::erase_if(nets, [deep](const Net& net) {
    static const std::vector<std::string> more = {
        "resnet32", "resnet44",     "resnet56",    "resnet110",       "preresnet164",
        "vgg13",    "vgg16",        "vgg19",       "resnet18",        "resnet34",
        "resnet50", "mobilenet_v2", "densenet121", "wide_resnet16_8", "vgg11 plain dropout",
        "segnet",   "ssd300"};
    return (std::find(more.begin(), more.end(), net.name) != more.end()) != deep;
  });
  return nets;
}

struct Way {
  NumberFormat format;
  bool adaptive;
};
// Two of the four for those with millions of weights.
inline std::vector<Way> WaysOf(const Net& net) {
  const bool segments = net.task == Task::kSegmentation, detects = net.task == Task::kDetection;
  if (net.name.starts_with("vgg") || IsForImageNet(net.name) || segments || detects)
    return {{kFp16, true}, {kBf16, false}};
  return {{kFp16, true}, {kFp16, false}, {kBf16, true}, {kBf16, false}};
}

enum class Fusion { kAll, kStored, kNone };  // kStored: all but what keeps values out of memory

inline graph::GraphSpec SpecOf(const Net& net, const Way& way, Fusion fusion) {
  graph::GraphSpec spec;
  spec.model = &net.model;
  spec.task = net.task;
  spec.precision.base = {way.format, way.format, way.format, kFp32};
  spec.input = net.input;
  spec.fuse = fusion != Fusion::kNone;
  spec.recompute = fusion == Fusion::kAll;
  spec.histograms = {"y", "dx"};
  spec.rule_for = [way](const graph::ScalerRequest& request) {
    scaling::LayerRule rule;
    rule.has_weight = request.has_weight;
    if (!way.adaptive) return rule;
    rule.method = scaling::LayerMethod::kApproxRange;
    rule.u_min = request.gradient_format.smallest_subnormal();
    rule.u_max = request.gradient_format.largest();
    rule.fan = request.fan_exact;
    return rule;
  };
  return spec;
}

// A batch in two micro-batches, the same for every graph.
struct Batch {
  // output: what the loss is of, without its channels.
  Batch(const Shape& input, Task task, const Shape& output)
      : micro{input.n, input.n / 2 + 1},
        places(output.h * output.w),
        counts(task != Task::kClassification) {
    RandomStream random(7, StreamId("batch"));
    images.resize(static_cast<std::size_t>(input.numel()));
    for (float& v : images) v = static_cast<float>(random.Normal());
    for (std::int64_t i = 0; i < input.n * places; ++i) {
      const bool background = task == Task::kDetection && random.Below(50) > 0;
      labels.push_back(background ? 0 : static_cast<std::int32_t>(random.Below(10)));
      if (task == Task::kSegmentation && random.Below(9) == 0) labels.back() = -1;
    }
    if (task != Task::kDetection) return;
    locations.resize(4 * labels.size());
    for (float& v : locations) v = static_cast<float>(random.Normal());
  }
  // What the loss of the first `rows` images is a mean over.
  std::int64_t Terms(std::int64_t rows) const {
    if (!counts) return rows;
    const std::int32_t least = locations.empty() ? 0 : 1;
    return std::count_if(labels.begin(), labels.begin() + rows * places,
                         [least](std::int32_t label) { return label >= least; });
  }
  backend::Targets targets() const { return {labels.data(), {}, locations.data()}; }

  std::int64_t micro[2];
  std::int64_t places;  // of labels, in an image
  bool counts;          // the terms of the loss among the labels
  Floats images, locations;
  std::vector<std::int32_t> labels;
};

class Model {
 public:
  // Weights from the seed, or those of `from`.
  Model(const Net& net, const Way& way, Fusion fusion, backend::Backend& backend,
        const Model* from = nullptr)
      : backend_(backend),
        graph_(graph::Graph::Build(SpecOf(net, way, fusion), backend)),
        batch_(net.input, net.task, graph_->outputs()[0].shape) {
    if (from == nullptr) {
      graph::Initialize(*graph_, net.model.init, 1, backend);
      return;
    }
    for (std::size_t i = 0; i < parameters().size(); ++i)
      std::copy_n(from->parameters()[i].value.f32(), parameters()[i].numel(),
                  parameters()[i].value.f32());
  }
  void MicroBatch(int step, int index) {
    backend::Pass pass;
    pass.rows = static_cast<int>(batch_.micro[index]);
    pass.loss_terms = batch_.Terms(batch_.micro[0]) + batch_.Terms(batch_.micro[1]);
    pass.accumulate = index > 0, pass.edge = 0.5;
    pass.count = pass.bins = (step + index) % 2 == 0;
    pass.seed = 3, pass.draw = static_cast<std::uint64_t>(2 * step + index);
    if (index == 0) graph_->RefreshWeights(pass);
    graph_->SetBatch(batch_.images.data(), batch_.targets(), pass.rows);
    graph_->Forward(pass);
    logits_.resize(static_cast<std::size_t>(pass.rows * graph_->logits().shape.per_image()));
    backend_.Read(graph_->logits(), pass.rows, logits_.data());  // before their memory is reused
    graph_->Backward(pass);
  }
  void Update() {
    for (const graph::Parameter& p : parameters())
      for (std::int64_t i = 0; p.gradient && i < p.numel(); ++i)
        p.value.f32()[i] -= 0.01f * p.gradient.f32()[i];
  }
  double loss() const { return graph_->Result().loss_sum; }
  const Floats& logits() const { return logits_; }  // of the last micro-batch
  const std::vector<graph::Parameter>& parameters() const { return graph_->parameters(); }
  const graph::Graph& graph() const { return *graph_; }

 private:
  backend::Backend& backend_;
  std::unique_ptr<graph::Graph> graph_;
  const Batch batch_;
  Floats logits_;
};

}  // namespace ada::run
