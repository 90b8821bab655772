// Gradients of small networks of segmentation and detection, through both losses to every
// parameter, against differences of the loss along random directions, in fp32. A loss has kinks
// (relu, the choice of hard negatives) and jumps (a maximum that moves is put elsewhere), which
// some directions cross: of each parameter's directions more than half agree.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/cpu_backend.h"
#include "graph/graph.h"
#include "graph/precisions.h"
#include "graph/vision_networks.h"
#include "number/random.h"

namespace ada::graph::test {
namespace {

constexpr float kStep = 0x1p-13F, kScale = 64;
constexpr std::uint64_t kDirections = 7;

class Differences {
 public:
  Differences(GraphSpec spec, const config::ModelConfig& model) : input_(spec.input) {
    spec.model = &model;
    spec.precision = Uniform(kFp32);
    graph_ = Graph::Build(spec, *backend_);
    Initialize(*graph_, {}, 3, *backend_);
    pass_.rows = static_cast<int>(input_.n), pass_.loss_scale = kScale;
    images_.resize(static_cast<std::size_t>(input_.numel()));
    RandomStream random(4, 1);
    for (float& value : images_) value = static_cast<float>(random.Normal());
  }

  const Graph& graph() const { return *graph_; }

  void SetTargets(const backend::Targets& targets, std::int64_t terms) {
    pass_.loss_terms = terms;
    targets_ = targets;
  }

  // Each parameter along directions of its own.
  void Check() {
    Loss();
    graph_->Backward(pass_);
    std::vector<std::vector<float>> gradients;
    for (const Parameter& p : graph_->parameters())
      gradients.emplace_back(p.gradient ? p.gradient.f32() : nullptr,
                             p.gradient ? p.gradient.f32() + p.numel() : nullptr);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const Parameter& parameter = graph_->parameters()[i];
      if (!parameter.gradient) continue;
      CAPTURE(parameter.name);
      double square = 0;
      for (const float g : gradients[i]) square += static_cast<double>(g) * static_cast<double>(g);
      std::vector<double> errors;
      for (std::uint64_t direction = 0; direction < kDirections; ++direction) {
        const auto [slope, expected] = Along(parameter, gradients[i], direction);
        errors.push_back(std::fabs(slope - expected));
      }
      std::sort(errors.begin(), errors.end());
      CHECK(errors[kDirections / 2] <= 5e-2 * std::sqrt(square) + 2e-3);
    }
  }

 private:
  double Loss() {
    graph_->RefreshWeights(pass_);
    graph_->SetBatch(images_.data(), targets_, pass_.rows);  // each pass anew: memory is reused
    graph_->Forward(pass_);
    return graph_->Result().loss_sum / static_cast<double>(pass_.loss_terms);
  }

  // By difference, and by the gradient.
  std::pair<double, double> Along(const Parameter& parameter, const std::vector<float>& gradient,
                                  std::uint64_t direction) {
    RandomStream random(5 + direction, StreamId(parameter.name));
    float* values = parameter.value.f32();
    const std::vector<float> start(values, values + parameter.numel());
    std::vector<float> way(start.size());
    for (float& v : way) v = static_cast<float>(random.Normal());
    double expected = 0;
    for (std::size_t i = 0; i < way.size(); ++i)
      expected += static_cast<double>(way[i]) * static_cast<double>(gradient[i]);
    const auto at = [&](float step) {
      for (std::size_t i = 0; i < way.size(); ++i) values[i] = start[i] + step * way[i];
      return Loss();
    };
    const double above = at(kStep), below = at(-kStep);
    std::copy(start.begin(), start.end(), values);
    return {(above - below) / (2 * static_cast<double>(kStep)), expected};
  }

  const Shape input_;
  std::unique_ptr<backend::Backend> backend_ = backend::cpu::MakeCpuBackend(1);
  std::unique_ptr<Graph> graph_;
  backend::Pass pass_;
  std::vector<float> images_;
  backend::Targets targets_;
};

TEST_SUITE("cpu") {
  TEST_CASE("segmentation: the weighted loss of pixels, some of them ignored") {
    const config::ModelConfig model = SmallSegNet();
    for (const Shape& input : {Shape{2, 5, 7, 3}, Shape{1, 6, 5, 3}}) {
      CAPTURE(ToString(input));
      GraphSpec spec;
      spec.task = Task::kSegmentation;
      spec.input = input;
      spec.class_weights = {0.5F, 2, 1, 0.25F};
      Differences differences(spec, model);
      RandomStream random(6, 1);
      std::vector<std::int32_t> labels(static_cast<std::size_t>(input.n * input.h * input.w));
      std::int64_t terms = 0;
      for (std::int32_t& label : labels) {
        label = static_cast<std::int32_t>(random.Below(5)) - 1;
        terms += label >= 0;
      }
      differences.SetTargets({.labels = labels.data()}, terms);
      differences.Check();
    }
  }

  TEST_CASE("detection: Huber's loss and hard negatives, through heads on two layers") {
    for (const auto& [batch_norm, second_alone] :
         {std::pair(false, false), std::pair(true, false), std::pair(true, true)}) {
      CAPTURE(second_alone);
      const config::ModelConfig model = SmallSsd(batch_norm, second_alone);
      GraphSpec spec;
      spec.task = Task::kDetection;
      spec.input = {3, 6, 8, 3};
      Differences differences(spec, model);
      const std::int64_t boxes = differences.graph().outputs()[0].shape.w;
      CHECK(boxes == (second_alone ? 0 : 2 * 48) + 3 * 12);
      RandomStream random(7, 1);
      std::vector<std::int32_t> labels(static_cast<std::size_t>(spec.input.n * boxes));
      std::vector<float> locations(4 * labels.size());
      std::int64_t terms = 0;
      for (std::int32_t& label : labels) {
        label = random.Below(8) > 0 ? 0 : static_cast<std::int32_t>(random.Below(4));
        terms += label > 0;
      }
      for (float& value : locations) value = static_cast<float>(2 * random.Normal());
      differences.SetTargets({.labels = labels.data(), .locations = locations.data()}, terms);
      differences.Check();
    }
  }
}

}  // namespace
}  // namespace ada::graph::test
