// The compare backend: it finds nothing where there is nothing to find, and names the first op that
// is wrong, be it by one bit, one count or one decision.
#include <doctest/doctest.h>

#include "backend/compare/tolerances.h"
#include "backend/isa_setting.h"
#include "compare/breaking_backend.h"
#include "compare/network_steps.h"
#include "compare/training_run.h"
#include "error.h"
#include "temp_folder.h"
#include "train/run_files.h"

namespace ada::backend::test {
namespace {

using compare::Difference;
using graph::test::TestNetwork;

// A network of every kind of op.
const TestNetwork& Everything() {
  static const TestNetwork network = {"awkward", graph::test::Awkward(), {5, 10, 9, 3}};
  return network;
}

std::unique_ptr<Backend> BaseCpu() {
  const IsaSetting setting("sse2");
  return cpu::MakeCpuBackend(1);
}

// What a CPU backend and one with a mistake disagree about.
std::vector<Difference> Find(const TestNetwork& network, const Mistake& mistake, int steps = 1,
                             const NumberFormat& format = kFp16, bool fp8_sums = false) {
  std::vector<Difference> found;
  CompareOptions options;
  options.fp8_sums = fp8_sums;
  options.report = [&](const Difference& difference) { found.push_back(difference); };
  const auto backend = MakeCompareBackend(cpu::MakeCpuBackend(1),
                                          std::make_unique<BreakingBackend>(mistake), options);
  Training training{"", graph::test::Uniform(format), scaling::LayerMethod::kApproxRange};
  NetworkSteps network_steps(network, training, *backend);
  for (int i = 0; i < steps; ++i) network_steps.Step();
  return found;
}

template <class Spec, class Body>
Mistake In(const std::string& layer, bool backward, Body&& body) {
  return {layer, backward, [body](const OpSpec& spec) { body(std::get<Spec>(spec)); }};
}
// The next value of the storage: one unit in the last place.
void Nudge(const Tensor& tensor, std::int64_t i) {
  if (tensor.storage == Storage::kF32)
    ++reinterpret_cast<std::uint32_t*>(tensor.data)[i];
  else
    ++reinterpret_cast<std::uint16_t*>(tensor.data)[i];
}
float LargestOf(const Tensor& t) {
  float largest = 0;
  for (std::int64_t i = 0; i < t.shape.numel(); ++i)
    largest = std::max(largest, std::fabs(t.f32()[i]));
  return largest;
}
void CheckFirst(const std::vector<Difference>& found, const std::string& layer,
                const std::string& phase, const std::string& tensor, const std::string& what) {
  REQUIRE(!found.empty());
  const std::string text = ToString(found[0], "cpu", "broken");
  CAPTURE(text);
  CHECK(found[0].layer == layer);
  CHECK(found[0].phase == phase);
  CHECK(found[0].tensor == tensor);
  CHECK(found[0].what.starts_with(what));
}

TEST_SUITE("cpu") {
  TEST_CASE("compare: instruction sets agree within the bound, op by op") {
    for (const TestNetwork& network :
         {Everything(), TestNetwork{"casts", graph::test::WithCasts(), {5, 6, 6, 3}},
          TestNetwork{"concat", graph::test::WithConcat(), {5, 6, 6, 3}},
          TestNetwork{"input", graph::test::WithInput(), {5, 6, 6, 3}}})
      for (const Training& training : AllTrainings()) {
        CAPTURE(network.name);
        CAPTURE(training.name);
        const auto backend = MakeCompareBackend(BaseCpu(), cpu::MakeCpuBackend(2));
        NetworkSteps steps(network, training, *backend);
        for (int i = 0; i < 3; ++i) CHECK_NOTHROW(steps.Step());
        CHECK(std::isfinite(steps.losses().back()));
      }
  }

  TEST_CASE("compare: the run is the first backend's, to the bit") {
    const Training training = AllTrainings()[2];
    const auto both = MakeCompareBackend(cpu::MakeCpuBackend(1), BaseCpu());
    const auto one = cpu::MakeCpuBackend(1);
    NetworkSteps a(Everything(), training, *both), b(Everything(), training, *one);
    for (int i = 0; i < 3; ++i) a.Step(), b.Step();
    CHECK(a.losses() == b.losses());
    CHECK(a.norms() == b.norms());
    REQUIRE(a.graph().scales().size() == b.graph().scales().size());
    for (std::size_t i = 0; i < a.graph().scales().size(); ++i)
      CHECK(a.graph().scales()[i].decision->scale_out == b.graph().scales()[i].decision->scale_out);
  }

  TEST_CASE("compare: a value that is wrong by one bit is named, with its place") {
    CheckFirst(
        Find(Everything(), In<MaxPoolSpec>("p1", false, [](const auto& s) { Nudge(s.y, 5); })),
        "p1", "forward", "y", "value [n 0, h 0, w 1, c 1]");
    CheckFirst(Find(Everything(),
                    In<AvgPoolSpec>("p3", true, [](const auto& s) { Nudge(s.dx.tensor, 4); })),
               "p3", "backward", "dx", "value [n 0, h 0, w 1, c 0]");
    CheckFirst(
        Find(Everything(), In<AddSpec>("three", false, [](const auto& s) { Nudge(s.y, 0); })),
        "three", "forward", "y", "value [n 0");
  }

  TEST_CASE("compare: a product's value two spacings off, or a sum that lacks a term") {
    const auto off = [](bool backward, int spacings) {
      return In<Conv2dSpec>("c2", backward, [backward, spacings](const auto& s) {
        for (int i = 0; i < spacings; ++i) Nudge(backward ? s.dx.tensor : s.y, 40);
      });
    };
    for (const bool backward : {false, true}) {
      CHECK(Find(Everything(), off(backward, 1)).empty());  // a neighbor may be the nearest
      const std::vector<Difference> found = Find(Everything(), off(backward, 2));
      CheckFirst(found, "c2", backward ? "backward" : "forward", backward ? "dx" : "y",
                 "value [n 0, h 1, w ");
      CHECK(found[0].op == "conv2d");
      CHECK(found.size() == 2);  // one a micro-batch: later ops start from the same inputs again
    }
    CheckFirst(
        Find(Everything(),
             In<Conv2dSpec>("c2", false,
                            [](const auto& s) { s.y.f32()[7] -= s.x.f32()[0] * s.w.f32()[0]; }),
             1, kFp32),
        "c2", "forward", "y", "value [n 0, h 0, w 1, c 3]");
    CheckFirst(Find(Everything(), In<Conv2dSpec>("c2", true,
                                                 [](const auto& s) {
                                                   s.dw.f32()[7] += LargestOf(s.dw) * 0x1p-14f;
                                                 })),
               "c2", "backward", "dw", "value [7]");
    CheckFirst(Find(Everything(), In<LinearSpec>("f2", true,
                                                 [](const auto& s) {
                                                   s.db.f32()[3] += LargestOf(s.db) * 0x1p-14f;
                                                 })),
               "f2", "backward", "db", "value [3]");
  }

  TEST_CASE("compare: products that are rounded otherwise, though each to a neighbor") {
    const auto every = [](std::int64_t step) {
      return In<Conv2dSpec>("c2", false, [step](const auto& s) {
        for (std::int64_t i = 0; i < s.y.shape.numel() / 2; i += step) Nudge(s.y, i);
      });
    };
    CHECK(Find(Everything(), every(500)).empty());
    const std::vector<Difference> found = Find(Everything(), every(4));
    CheckFirst(found, "c2", "forward", "y", "value [n ");
    CHECK(found[0].what.ends_with(" rounded otherwise"));
  }

  TEST_CASE("compare: sums of fp8 products may be off by more where a side has units for 8 bits") {
    const auto sums_off = In<Conv2dSpec>("c2", true, [](const auto& s) {
      for (std::int64_t i = 0; i < s.dw.shape.numel(); ++i) s.dw.f32()[i] *= 1 + 0x1p-13f;
    });
    CHECK(Find(Everything(), sums_off, 1, kFp8E4M3, true).empty());
    for (const auto& [format, fp8_sums] : {std::pair(kFp8E4M3, false), std::pair(kFp16, true)})
      CheckFirst(Find(Everything(), sums_off, 1, format, fp8_sums), "c2", "backward", "dw",
                 "value");
  }

  TEST_CASE("compare: batch norm's output, gradients and running statistics") {
    CheckFirst(
        Find(Everything(),
             In<BatchNormSpec>("n1", true, [](const auto& s) { s.dgamma.f32()[2] *= 1.001f; })),
        "n1", "backward", "dgamma", "value [2]");
    CheckFirst(Find(Everything(),
                    In<BatchNormSpec>("b2", false,
                                      [](const auto& s) { s.running_var.f32()[1] *= 1.001f; })),
               "b2", "forward", "running_var", "value [1]");
    CheckFirst(Find(Everything(),
                    In<BatchNormSpec>("b1", false,
                                      [](const auto& s) { Nudge(s.out, 17), Nudge(s.out, 17); })),
               "b1", "forward", "y", "value [n 0, h 0, w 4, c 1]");
  }

  TEST_CASE("compare: counts, moments, histograms and decisions") {
    // One that is off is found in an op that is exact; of sums a share is.
    CheckFirst(Find(Everything(),
                    In<AvgPoolSpec>("p3", true, [](const auto& s) { s.dx.stats->underflow += 1; })),
               "p3", "backward", "dx", "underflow");
    const auto counted = [](double share) {
      return In<Conv2dSpec>("c2", true, [share](const auto& s) {
        s.dx.stats->underflow +=
            static_cast<std::int64_t>(share * static_cast<double>(s.dx.stats->numel));
      });
    };
    CHECK(Find(Everything(), counted(0.01)).empty());
    CheckFirst(Find(Everything(), counted(0.05)), "c2", "backward", "dx", "underflow");
    CheckFirst(
        Find(Everything(),
             In<Conv2dSpec>("c1", false, [](const auto& s) { s.y_stats->max_abs *= 1.001f; })),
        "c1", "forward", "y", "max_abs");
    CheckFirst(
        Find(Everything(),
             In<Conv2dSpec>("c2", true, [](const auto& s) { (*s.dx.style.bins)[-20] += 500; })),
        "c2", "backward", "dx", "histogram");
    CheckFirst(
        Find(Everything(),
             In<Conv2dSpec>("c2", true, [](const auto& s) { s.scaler->decision.alpha *= 2; })),
        "c2", "backward", "decision", "alpha");
    CheckFirst(Find(Everything(),
                    In<BatchNormSpec>("b2", true,
                                      [](const auto& s) { s.dx.moments->mean_square *= 1.01; })),
               "b2", "backward", "dx", "mean square");
  }

  TEST_CASE("compare: sums of what is noted, and a scale, that are off beyond last digits") {
    const auto noted = [](auto&& change) {
      return In<AvgPoolSpec>("p3", true, [change](const auto& s) { change(*s.dx.stats); });
    };
    const auto off = [&](double TensorStats::*field, double factor) {
      return Find(Everything(), noted([=](TensorStats& s) { s.*field *= factor; }));
    };
    CHECK(off(&TensorStats::l1, 1 + 1e-11).empty());
    CheckFirst(off(&TensorStats::l1, 1 + 1e-8), "p3", "backward", "dx", "l1");
    CheckFirst(off(&TensorStats::l2, 1 + 1e-8), "p3", "backward", "dx", "l2");
    CheckFirst(off(&TensorStats::std, 1 + 1e-4), "p3", "backward", "dx", "std");
    const auto alpha = [](float factor) {
      return In<Conv2dSpec>("c2", true,
                            [factor](const auto& s) { s.scaler->decision.alpha *= factor; });
    };
    CHECK(Find(Everything(), alpha(1 + 0x1p-16f)).empty());
    CheckFirst(Find(Everything(), alpha(1 + 0x1p-12f)), "c2", "backward", "decision", "alpha");
  }

  TEST_CASE("compare: an update is equal to the bit under SGD, and nearly so under Adam") {
    // Moves one value of the first parameter by a share of its largest magnitude.
    class OffUpdate final : public UpdateOp {
     public:
      OffUpdate(std::unique_ptr<UpdateOp> op, const Tensor& value, float share)
          : op_(std::move(op)), value_(value), share_(share) {}
      void CheckWatched() override { op_->CheckWatched(); }
      void Plan(const UpdatePlan& plan) override { op_->Plan(plan); }
      void Update() override {
        op_->Update();
        value_.f32()[1] += share_ * LargestOf(value_);
      }
      UpdateOutcome Outcome() override { return op_->Outcome(); }

     private:
      std::unique_ptr<UpdateOp> op_;
      Tensor value_;
      float share_;
    };
    class OffBackend final : public PassingBackend {
     public:
      explicit OffBackend(float share) : PassingBackend(cpu::MakeCpuBackend(1)), share_(share) {}
      std::unique_ptr<UpdateOp> MakeUpdate(const UpdateRule& rule, std::vector<UpdateSlot> slots,
                                           std::vector<WatchedRounding> watched) override {
        const Tensor value = slots[0].value;
        return std::make_unique<OffUpdate>(inner().MakeUpdate(rule, slots, std::move(watched)),
                                           value, share_);
      }

     private:
      float share_;
    };
    const auto find = [](UpdateRule::Kind kind, float share) {
      std::vector<Difference> found;
      CompareOptions options;
      options.report = [&](const Difference& difference) { found.push_back(difference); };
      const auto backend =
          MakeCompareBackend(cpu::MakeCpuBackend(1), std::make_unique<OffBackend>(share), options);
      Training training{"", graph::test::Uniform(kFp32)};
      training.update = kind;
      NetworkSteps steps(Everything(), training, *backend);
      steps.Step();
      return found;
    };
    CheckFirst(find(UpdateRule::Kind::kSgd, 0x1p-20f), "", "update", "value", "value [1]");
    CHECK(find(UpdateRule::Kind::kAdam, 0x1p-23f).empty());
    CheckFirst(find(UpdateRule::Kind::kAdam, 0x1p-18f), "", "update", "value", "value [1]");
  }

  TEST_CASE("compare: device.compare runs a configuration on both") {
    const std::string text =
        "device: {kind: cpu, threads: 1, compare: true}\n"
        "data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 3, classes: 4, "
        "train: "
        "20, test: 6}, batch_size: 10, evaluate_batch_size: 4}\n"
        "model:\n  layers:\n"
        "    - {name: conv1, kind: conv2d, channels: 4, kernel: 3, padding: 1}\n"
        "    - {name: bn1, kind: batch_norm}\n    - {name: relu1, kind: relu}\n"
        "    - {name: fc, kind: linear, features: 4}\n"
        "precision: {format: fp16}\nscaling: {policy: adaptive}\n"
        "optimizer: {kind: adamw, lr: 0.01}\ntrain: {max_steps: 3, accumulate: 2}\n"
        "log: {every: 1}\n";
    const testing::TempFolder folder;
    const auto device = config::LoadText(text, "run.yaml", {}).config.device;
    const auto chosen = run::MakeBackend(device);
    CHECK(chosen.reason.starts_with("compare cpu with cpu: cpu ("));
    TrainOn(*chosen.backend, text, {}, folder / "both");
    TrainOn(*cpu::MakeCpuBackend(1), text, {}, folder / "one");
    for (const char* file : {"/steps.csv", "/scales.csv", "/underflow.csv"})
      CHECK(testing::ReadBytes(folder / "both" + file) ==
            testing::ReadBytes(folder / "one" + file));
  }

  TEST_CASE("compare: without a report the difference is a DeviceError that says all") {
    const auto backend = MakeCompareBackend(cpu::MakeCpuBackend(1),
                                            std::make_unique<BreakingBackend>(In<MaxPoolSpec>(
                                                "p4", false, [](const auto& s) { Nudge(s.y, 0); })),
                                            {"cpu", "broken", 1, {}});
    Training training{"fp32", graph::test::Uniform(kFp32)};
    NetworkSteps steps(Everything(), training, *backend);
    std::string text;
    try {
      steps.Step();
    } catch (const DeviceError& error) {
      text = error.what();
    }
    CAPTURE(text);
    CHECK(text.starts_with("compare: call "));
    CHECK(text.find("layer p4 (max_pool), forward, y, value [n 0, h 0, w 0, c 0]: cpu ") !=
          std::string::npos);
    CHECK(text.find(", broken ") != std::string::npos);
    CHECK(text.find("(allowed: exactly equal)") != std::string::npos);
  }
}

}  // namespace
}  // namespace ada::backend::test
