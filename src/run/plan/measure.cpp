// Steps are timed on made-up images, for what they mean for an epoch; learning rates are listed
// (the rates command).
#include <algorithm>
#include <limits>
#include <ostream>
#include <vector>

#include "graph/network/parameters.h"
#include "io/text.h"
#include "number/random.h"
#include "optim/schedule.h"
#include "run/assemble/assemble.h"
#include "run/plan/plan_reports.h"
#include "step/specs.h"
#include "telemetry/progress.h"

namespace ada::run {

namespace {

// Normal numbers, as normalized images are, or any tokens, and every class in turn: of images, of
// pixels, of tokens, of one default box in a hundred, which is about what objects take.
struct MadeUpBatch {
  MadeUpBatch(Task task, int rows, const Shape& image, const graph::Graph& graph)
      : images(task == Task::kLanguage ? 0 : static_cast<std::size_t>(rows * image.per_image())),
        tokens(task == Task::kLanguage ? static_cast<std::size_t>(rows * image.h) : 0) {
    RandomStream random(1, StreamId("measure"));
    for (float& value : images) value = 4 * random.Uniform() - 2;
    for (std::int32_t& token : tokens)
      token = static_cast<std::int32_t>(random.Below(static_cast<std::uint32_t>(graph.classes())));
    const Shape& output = graph.outputs().back().shape;
    const std::int64_t count = rows * output.h * output.w, classes = output.c;
    const bool detects = task == Task::kDetection;
    for (std::int64_t i = 0; i < count; ++i)
      labels.push_back(static_cast<std::int32_t>(detects && i % 100 != 0 ? 0 : i % classes));
    if (detects) locations.resize(static_cast<std::size_t>(count) * 4);
  }
  backend::Targets targets() const {
    return {labels.data(), {}, locations.empty() ? nullptr : locations.data()};
  }
  std::int64_t terms() const {
    if (locations.empty()) return static_cast<std::int64_t>(labels.size());
    return std::count_if(labels.begin(), labels.end(),
                         [](std::int32_t label) { return label > 0; });
  }
  void Feed(graph::Graph& graph, int rows) const {
    if (tokens.empty()) return graph.SetBatch(images.data(), targets(), rows);
    graph.SetTokens(tokens.data(), targets(), rows);
  }
  std::vector<float> images, locations;
  std::vector<std::int32_t> tokens, labels;
};

// Waits for all work before it stops the clock: Outcome and Result need it done.
double OneStep(const config::Config& config, graph::Graph& graph, optim::Optimizer& optimizer,
               const MadeUpBatch& batch, backend::Pass pass) {
  const double start = telemetry::SteadySeconds();
  graph.RefreshWeights(pass);
  for (int first = 0; first < config.data.batch_size; first += pass.rows, ++pass.draw) {
    pass.accumulate = first > 0;
    batch.Feed(graph, pass.rows);
    graph.Forward(pass);
    graph.Backward(pass);
  }
  backend::UpdatePlan plan;
  plan.step.lr = config.optimizer.lr, plan.step.seed = config.seed;
  optimizer.Update(plan);
  graph.Collect(pass);
  optimizer.Outcome();
  graph.Result();
  return telemetry::SteadySeconds() - start;
}

}  // namespace

// The fastest of several steps is taken: the first one also makes kernels and touches memory for
// the first time.
double MeasureStep(const config::Config& config, graph::Graph& graph, optim::Optimizer& optimizer,
                   const scaling::Policy& policy, const Shape& image, backend::Backend& backend) {
  config::InitConfig init = config.model.init;
  init.weights.clear();
  graph::Initialize(graph, init, config.seed, backend);
  backend::Pass pass;
  pass.rows = config.data.batch_size / config.train.accumulate;
  pass.loss_scale = static_cast<float>(policy.Scale());
  pass.seed = config.seed;
  const MadeUpBatch batch(config.task, pass.rows, image, graph);
  pass.loss_terms = batch.terms() * config.train.accumulate;
  double fastest = std::numeric_limits<double>::infinity();
  for (int step = 0; step < kMeasuredSteps; ++step)
    fastest = std::min(fastest, OneStep(config, graph, optimizer, batch, pass));
  return fastest;
}

std::string MeasuredText(double seconds, const config::Config& config, const Shape& image,
                         std::int64_t steps_per_epoch) {
  const bool language = config.task == Task::kLanguage;
  const double per_step =
      static_cast<double>(config.data.batch_size) * static_cast<double>(language ? image.h : 1);
  const double epoch = seconds * static_cast<double>(steps_per_epoch);
  const std::string time = epoch >= 5400  ? Formatted("%.1f", epoch / 3600) + " h"
                           : epoch >= 120 ? Formatted("%.1f", epoch / 60) + " min"
                                          : Formatted("%.3g", epoch) + " s";
  return "a step " + Formatted("%.3g", seconds) + " s, " + Formatted("%.3g", per_step / seconds) +
         (language ? " tokens/s" : " images/s") + "; an epoch about " + time +
         " (the fastest of 3 steps on made-up " + (language ? "tokens" : "images") +
         "; loading, logs and evaluation are not in it)";
}

// --- Rates ---

void PrintRates(const config::Config& config, std::int64_t steps_per_epoch, std::int64_t every,
                std::ostream& out) {
  const std::int64_t per_epoch = steps_per_epoch > 0
                                     ? steps_per_epoch
                                     : step::StepsPerEpoch(config, InspectData(config).train);
  const std::int64_t total = step::TotalSteps(config, per_epoch);
  out << "step,epoch,lr\n";
  std::int64_t step = 0;
  // A closed pipe ends the loop: a long run has millions of steps.
  while (out) {
    const double lr =
        optim::LearningRate(config.schedule, config.optimizer.lr, step, per_epoch, total);
    out << step + 1 << ',' << step / per_epoch + 1 << ',' << ShortestText(lr) << '\n';
    if (step + 1 == total) return;
    step += std::min(every, total - 1 - step);
  }
}

}  // namespace ada::run
