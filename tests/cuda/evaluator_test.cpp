// Evaluation on the CUDA backend, where images are made in backend memory: what comes out is what
// the same graph says of batches from the loader.
#include "run/evaluate/evaluator.h"

#include <doctest/doctest.h>

#include "config/load.h"
#include "cuda/on_both.h"
#include "run/assemble/assemble.h"
#include "step/batches/batches.h"
#include "train/small_run.h"

namespace ada::backend::test {
namespace {

config::Config Small() {
  config::Config config =
      config::LoadText(testing::kSmallNetwork, "small.yaml", {{"name", "small"}}).config;
  config::FillDefaults(config);
  return config;
}

struct Seen {
  std::vector<std::int64_t> images;
  std::vector<std::int32_t> labels;
  std::vector<double> losses;
};

run::EvaluationResult Run(run::Evaluator& evaluator, const data::Dataset& dataset,
                          const data::LoaderSpec& spec, Seen& seen) {
  run::EvaluationCallbacks callbacks;
  callbacks.visit = [&](const run::ImageResult& result) {
    seen.images.push_back(result.image);
    seen.labels.push_back(result.label);
    seen.losses.push_back(result.loss);
  };
  return evaluator.Run(dataset, spec, callbacks);
}

// The loader's batches through the evaluator's graph.
LossResult FromLoader(Backend& backend, graph::Graph& graph, const data::Dataset& dataset,
                      const data::LoaderSpec& spec) {
  const auto made = step::MakeBatches(backend, dataset, spec, step::Residence::kHost);
  step::Batches& batches = *made;
  CHECK_FALSE(batches.resident());
  Pass pass;
  pass.training = false;
  for (std::int64_t i = 0; i < batches.batches_per_epoch(); ++i, pass.accumulate = true) {
    pass.rows = batches.Next(), pass.loss_terms = pass.rows;
    CHECK(batches.Feed(graph, 0, pass.rows).images != nullptr);
    graph.Forward(pass);
  }
  return graph.Result();
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("evaluation from backend memory: the loader's images, again and again, of two sets") {
    const config::Config config = Small();
    const run::RunData data = run::ReadData(config);
    const auto backend = MakeBackendUnderTest();
    const data::LoaderSpec spec = run::EvaluationLoader(config, data);
    const Shape image{1, data.train.height, data.train.width, data.train.channels};
    run::Evaluator evaluator(config, image, *backend, nullptr);
    graph::Initialize(evaluator.graph(), config.model.init, 5, *backend);
    REQUIRE(step::MakeBatches(*backend, data.test, spec)->resident());
    for (const data::Dataset* dataset : {&data.test, &data.train, &data.test}) {
      Seen first, second;
      const run::EvaluationResult result = Run(evaluator, *dataset, spec, first);
      CHECK(result.images == dataset->images());
      CHECK(result.images % config.data.evaluation_batch() != 0);
      CHECK(Run(evaluator, *dataset, spec, second).loss == result.loss);
      CHECK(second.losses == first.losses);
      const LossResult truth = FromLoader(*backend, evaluator.graph(), *dataset, spec);
      CHECK(truth.loss_sum / static_cast<double>(result.images) == result.loss);
      CHECK(static_cast<double>(truth.top1) / static_cast<double>(result.images) == result.top1);
      for (std::size_t i = 0; i < first.images.size(); ++i) {
        CHECK(first.images[i] == static_cast<std::int64_t>(i));
        CHECK(first.labels[i] == dataset->labels[i]);
      }
    }
  }
}

}  // namespace ada::backend::test
