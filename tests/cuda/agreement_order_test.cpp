// What a device may do otherwise than the host executor's plain loops: blocks and threads in any
// order, two streams each ahead of the other, steps replayed from a recording. Neither changes a
// byte, and a replayed step is the same launches in the same order with nothing that waits for the
// host among them.
#ifndef ADA_CUDA_DEVICE
#include <doctest/doctest.h>

#include <algorithm>
#include <utility>

#include "backend/cuda/context.h"
#include "compare/network_steps.h"
#include "cuda/host/host_stream.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

using graph::test::TestNetwork;

struct OnStream {
  explicit OnStream(bool main_late = false, bool sides_late = true) {
    auto owned = std::make_unique<cuda::HostStream>();
    stream = owned.get();
    stream->set_late(main_late, sides_late);
    backend = cuda::MakeBackendOn(std::move(owned), {"test", "host"}, {});
  }
  cuda::HostStream* stream;
  std::unique_ptr<Backend> backend;
};

const TestNetwork& Network() {
  static const TestNetwork network = {"awkward", graph::test::Awkward(), {5, 10, 9, 3}};
  return network;
}

std::vector<float> Weights(const graph::Graph& graph, Backend& backend) {
  std::vector<float> all;
  for (const graph::Parameter& p : graph.parameters()) {
    std::vector<float> values(static_cast<std::size_t>(p.numel()));
    backend.Read(p.value, p.value.shape.n, values.data());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}
void CheckSameStats(const graph::Graph& a, const graph::Graph& b) {
  for (std::size_t i = 0; i < a.roundings().size(); ++i) {
    const graph::RoundingPoint &p = a.roundings()[i], &q = b.roundings()[i];
    CAPTURE(p.layer);
    CAPTURE(p.tensor);
    const TensorStats &s = *p.stats, &t = *q.stats;
    CHECK(s.underflow == t.underflow);
    CHECK(s.max_abs == t.max_abs);
    CHECK(s.min_abs == t.min_abs);
    CHECK(s.mean == t.mean);
    CHECK(s.l1 == t.l1);
    CHECK(s.l2 == t.l2);
    CHECK(s.std == t.std);
    CHECK(p.total_scale() == q.total_scale());
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("order: blocks and threads that take their turns backwards change no byte") {
    for (const Training& training : AllTrainings()) {
      CAPTURE(training.name);
      OnStream forwards, backwards;
      backwards.stream->set_reverse(true);
      NetworkSteps a(Network(), training, *forwards.backend),
          b(Network(), training, *backwards.backend);
      for (int i = 0; i < 3; ++i) a.Step(), b.Step();
      CHECK(a.losses() == b.losses());
      CHECK(a.norms() == b.norms());
      CHECK(Weights(a.graph(), *forwards.backend) == Weights(b.graph(), *backwards.backend));
      CheckSameStats(a.graph(), b.graph());
    }
  }

  TEST_CASE("order: it changes no byte which of two streams is late") {
    for (const Training& training : AllTrainings()) {
      CAPTURE(training.name);
      OnStream at_once(false, false);
      NetworkSteps a(Network(), training, *at_once.backend);
      for (int i = 0; i < 5; ++i) a.Step();
      for (const auto& [main_late, sides_late] :
           {std::pair(false, true), {true, false}, {true, true}}) {
        CAPTURE(main_late);
        CAPTURE(sides_late);
        OnStream late(main_late, sides_late);
        NetworkSteps b(Network(), training, *late.backend);
        for (int i = 0; i < 5; ++i) b.Step();
        CHECK(a.losses() == b.losses());
        CHECK(a.norms() == b.norms());
        CHECK(Weights(a.graph(), *at_once.backend) == Weights(b.graph(), *late.backend));
        CheckSameStats(a.graph(), b.graph());
      }
    }
  }

  TEST_CASE("order: a replayed step is the launches of the first one") {
    OnStream one;
    one.stream->KeepNames();
    NetworkSteps steps(Network(), AllTrainings()[2], *one.backend);
    one.stream->TakeNames();
    std::vector<std::vector<std::string>> launches(8);
    std::vector<std::ptrdiff_t> replays, decisions;
    for (std::vector<std::string>& names : launches) {
      steps.Step();
      names = one.stream->TakeNames();
      replays.push_back(std::count(names.begin(), names.end(), "replay"));
      decisions.push_back(std::count(names.begin(), names.end(), "DecideKernel"));
      std::erase(names, "replay");
      std::erase(names, "DecideKernel");
      std::erase(names, "to device");  // also of tables, when a kind of step is done first
    }
    // Steps that count and those that do not take turns: each kind is done, recorded, replayed.
    for (std::size_t i = 2; i < launches.size(); ++i) CHECK(launches[i] == launches[i - 2]);
    // Once a step has shown who decides after whom, only steps that count launch decisions apart.
    CHECK(decisions[1] > 0);
    CHECK(decisions[3] < decisions[1]);
    for (std::size_t i = 4; i < launches.size(); ++i) CHECK(decisions[i] == decisions[i - 2]);
    CHECK(replays[0] == 0);
    // Each of two micro-batches as a whole: with the refresh before, or with the update after it.
    CHECK(replays[6] == 2);
    CHECK(replays[7] == 2);
    CHECK(launches[6].size() > 50);
  }

  TEST_CASE("order: what a step copies from and to the host does not grow with its layers") {
    std::vector<std::ptrdiff_t> to_host, to_device;
    for (const TestNetwork& network :
         {Network(), TestNetwork{"small", graph::test::WithInput(), {5, 6, 6, 3}}}) {
      OnStream one;
      NetworkSteps steps(network, AllTrainings()[2], *one.backend);
      for (int i = 0; i < 6; ++i) steps.Step();
      one.stream->KeepNames();
      steps.Step();
      const std::vector<std::string> names = one.stream->TakeNames();
      to_host.push_back(std::count(names.begin(), names.end(), "to host"));
      to_device.push_back(std::count(names.begin(), names.end(), "to device"));
    }
    CHECK(to_host[0] == to_host[1]);
    CHECK(to_device[0] == to_device[1]);
  }
}

}  // namespace
}  // namespace ada::backend::test
#endif
