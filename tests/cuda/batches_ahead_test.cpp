// Batches that go to the device as bytes, ahead of their turn: every micro-batch is the loader's,
// at the end of an epoch and after a jump, and (the host executor tells) what was sent ahead is not
// sent again.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "config/load.h"
#include "cuda/on_both.h"
#include "graph/graph.h"
#include "run/assemble/assemble.h"
#include "scaling/policies/policies.h"
#include "step/batches/batches.h"
#include "step/specs.h"
#include "train/small_run.h"

namespace ada::backend::test {
namespace {

config::Config Colored() {
  const config::Overrides overrides = {{"data.augment.color_jitter.brightness", "0.4"},
                                       {"data.batch_size", "18"},
                                       {"data.drop_last", "false"}};
  config::Config config = config::LoadText(std::string(testing::kSmallNetwork) + "name: small\n",
                                           "small.yaml", overrides)
                              .config;
  config::FillDefaults(config);
  return config;
}

struct Feeding {
  Feeding() : config(Colored()), data(run::ReadData(config)) {
#ifdef ADA_CUDA_DEVICE
    backend = MakeBackendUnderTest();
#else
    auto owned = std::make_unique<cuda::HostStream>();
    stream = owned.get();
    stream->KeepNames();
    backend = cuda::MakeBackendOn(std::move(owned), {"host", "host"}, {});
#endif
    policy = scaling::MakePolicy(config.scaling);
    const Shape image{1, data.train.height, data.train.width, data.train.channels};
    graph = graph::Graph::Build(step::TrainGraph(config, image, *policy), *backend);
  }
  // What the next pass over `rows` images reads.
  std::vector<float> Seen(int rows) const {
    std::vector<float> images(static_cast<std::size_t>(rows * data.train.per_image()));
    backend->Download(images.data(), reinterpret_cast<const std::byte*>(graph->image_memory()),
                      images.size() * sizeof(float));
    backend->Synchronize();
    return images;
  }
#ifdef ADA_CUDA_DEVICE
  void Forget() {}
  void CheckSent(std::int64_t) {}
  // The loader has the next batch ready by then, as a rule: it is sent ahead, or is not.
  void SendAhead(step::Batches& batches, int rows) const {
    for (int i = 0; i < 20; ++i) {
      batches.SendAhead(*graph, rows);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
#else
  // How many copies were asked of the lane since the last call.
  std::int64_t Sent() {
    const std::vector<std::string> names = stream->TakeNames();
    return std::count(names.begin(), names.end(), "lane: to device");
  }
  void Forget() { Sent(); }
  void CheckSent(std::int64_t copies) { CHECK(Sent() == copies); }
  void SendAhead(step::Batches& batches, int rows) {
    while (Sent() == 0) {
      batches.SendAhead(*graph, rows);
      std::this_thread::yield();
    }
    batches.SendAhead(*graph, rows);
    CheckSent(0);
  }
  cuda::HostStream* stream = nullptr;
#endif

  config::Config config;
  run::RunData data;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<scaling::Policy> policy;
  std::unique_ptr<graph::Graph> graph;
};

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("batches ahead: the loader's images, each sent once") {
    Feeding f;
    const data::LoaderSpec spec = run::TrainLoader(f.config, f.data);
    const auto made = step::MakeBatches(*f.backend, f.data.train, spec);
    step::Batches& batches = *made;
    REQUIRE(batches.as_bytes());
    data::Loader loader(f.data.train, spec);
    const auto rest = static_cast<int>(f.data.train.images() % spec.batch_size);
    REQUIRE(rest > 0);
    REQUIRE(loader.batches_per_epoch() < 9);
    constexpr int kMicro = 6;
    std::vector<int> all_rows;
    bool is_ahead = false;
    for (int step = 0; step < 20; ++step) {
      if (step == 11) {
        batches.Seek(3, 5), loader.Seek(3, 5);
        is_ahead = false;  // what lies ahead is of another place
      }
      const data::Batch expected = loader.Next();
      const int rows = batches.Next();
      REQUIRE(rows == expected.rows);
      all_rows.push_back(rows);
      for (int first = 0; first < rows; first += kMicro) {
        const int part = std::min(kMicro, rows - first);
        f.Forget();
        const step::Batches::Rows fed = batches.Feed(*f.graph, first, part);
        f.CheckSent(first == 0 && is_ahead ? 0 : 1);
        CHECK(fed.images == nullptr);
        CHECK(fed.targets.labels[0] == expected.labels[static_cast<std::size_t>(first)]);
        const auto begin = expected.images.begin() + first * f.data.train.per_image();
        const std::vector<float> seen = f.Seen(part);
        CHECK(std::equal(seen.begin(), seen.end(), begin));
      }
      if (step % 4 == 3) {
        is_ahead = false;  // a step that sends nothing
        continue;
      }
      f.SendAhead(batches, kMicro);
      is_ahead = true;
    }
    CHECK(std::count(all_rows.begin(), all_rows.end(), rest) >= 2);  // the ends of epochs
#ifndef ADA_CUDA_DEVICE
    CHECK(f.stream->guards_intact());
#endif
  }
}

}  // namespace ada::backend::test
