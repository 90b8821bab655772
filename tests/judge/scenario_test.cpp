// Scenarios on histograms made by hand; policies against the same policy object driven by hand.
#include "judge/scenario.h"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "config/load.h"
#include "error.h"

namespace ada::judge {
namespace {

using Counts = std::map<int, std::int64_t>;

// Tensors of one step; the bins live as long as it does.
struct MadeStep {
  std::deque<ExponentBins> bins;
  std::vector<HistogramOfTensor> tensors;

  MadeStep& Add(const std::string& layer, const std::string& tensor, const Counts& counts,
                double scale = 1, const NumberFormat& format = kFp16) {
    ExponentBins& made = bins.emplace_back();
    for (const auto& [exponent, count] : counts) made[exponent] = count;
    tensors.push_back({layer, tensor, format, scale, &made});
    return *this;
  }
};

config::ModelConfig Chain() {
  config::ModelConfig model;
  const auto add = [&](const char* name, const char* kind) {
    config::LayerConfig& layer = model.layers.emplace_back();
    layer.name = name;
    layer.kind = kind;
  };
  add("conv1", "conv2d");
  add("conv2", "conv2d");
  add("bn2", "batch_norm");
  add("relu2", "relu");
  add("fc", "linear");
  return model;
}

config::WhatIfConfig PolicyOf(const std::string& yaml) {
  config::WhatIfConfig choice;
  choice.scaling = config::LoadScalingText(yaml, "test", {}).scaling;
  return choice;
}

std::unique_ptr<scaling::Policy> DrivenByHand(const std::string& yaml) {
  scaling::Settings scaling = config::LoadScalingText(yaml, "test", {}).scaling;
  config::TrainConfig train;
  FillScalingDefaults(scaling, train);
  return scaling::MakePolicy(scaling);
}

double ScaleOf(const std::vector<telemetry::WhatIfRow>& rows, const std::string& layer,
               const std::string& tensor) {
  for (const telemetry::WhatIfRow& row : rows)
    if (row.layer == layer && row.tensor == tensor) return row.scale;
  return NAN;
}

TEST_SUITE_BEGIN("cpu");

// fp16: half of its smallest number is 2^-25, it overflows from 65520 on.
TEST_CASE("a format and a scale are taken by every tensor") {
  MadeStep step;
  step.Add("fc", "dx", {{-20, 10}, {-30, 5}}, 4).Add("fc", "w", {{-3, 8}});
  step.bins[0].zeros = 3;

  SUBCASE("as recorded") {
    Scenario scenario({}, Chain());
    const auto rows = scenario.Judge(7, 2, step.tensors);
    REQUIRE(rows.size() == 2);
    CHECK(scenario.name() == "as recorded");
    CHECK(rows[0].step == 7);
    CHECK(rows[0].epoch == 2);
    CHECK(rows[0].layer == "fc");
    CHECK(rows[0].tensor == "dx");
    CHECK(rows[0].scenario == "as recorded");
    CHECK(rows[0].format == "fp16");
    CHECK(rows[0].scale == 4);
    CHECK(rows[0].underflow_pct_nonzero == doctest::Approx(100.0 * 5 / 15));
    CHECK(rows[0].overflow == 0);
    CHECK(rows[0].underflow_unsure_pct == 0);
    CHECK(rows[1].underflow_pct_nonzero == 0);
  }
  SUBCASE("a scale") {
    config::WhatIfConfig choice;
    choice.scale = 32;  // the threshold is 2^-30, the lower end of a bin
    Scenario scenario(choice, Chain());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(scenario.name() == "scale=32");
    CHECK(rows[0].underflow_pct_nonzero == 0);
    CHECK(rows[0].underflow_unsure_pct == doctest::Approx(100.0 * 5 / 15));
    CHECK(rows[0].scale == 32);
    CHECK(rows[1].scale == 32);
  }
  SUBCASE("a format and a scale of no power of two") {
    config::WhatIfConfig choice;
    choice.name = "mine";
    choice.format = kFp8E5M2;  // half of its smallest number is 2^-17, it overflows from 61440 on
    choice.scale = 3 * 0x1p18;
    Scenario scenario(choice, Chain());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(rows[0].scenario == "mine");
    CHECK(rows[0].format == "fp8_e5m2");
    // Below 2^-35 / 3 nothing lies. w: 2^-3 * 3 * 2^18 = 98304 overflows already.
    CHECK(rows[0].underflow_pct_nonzero == 0);
    CHECK(rows[1].overflow == 8);
  }
  SUBCASE("a tensor of zeros has no share") {
    MadeStep zeros;
    zeros.Add("fc", "dx", {});
    zeros.bins[0].zeros = 9;
    Scenario scenario({}, Chain());
    CHECK(std::isnan(scenario.Judge(1, 1, zeros.tensors)[0].underflow_pct_nonzero));
  }
}

TEST_CASE("a global policy's scale is carried by dx and dy, the rest is as recorded") {
  MadeStep step;
  step.Add("fc", "y", {{0, 1}}, 2).Add("loss", "dx", {{0, 1}}, 8).Add("fc", "dw", {{0, 1}}, 1);
  step.Add("fc", "dx", {{0, 1}}, 8).Add("conv2", "dy", {{0, 1}}, 8);
  Scenario scenario(PolicyOf("{policy: fixed, scale: 128}"), Chain());
  const auto rows = scenario.Judge(1, 1, step.tensors);
  const std::vector<double> expected = {2, 128, 1, 128, 128};
  for (std::size_t i = 0; i < expected.size(); ++i) CHECK(rows[i].scale == expected[i]);
  CHECK(scenario.name() == "policy=fixed scale=128");
}

// Values of exponent e overflow for certain where e + log2 S is 16 or more.
TEST_CASE("dynamic policies go as the same policy driven by hand") {
  const char* policies[] = {
      "{policy: dynamic, growth_interval: 3, init_scale: 1024}",
      "{policy: dynamic, preset: mxnet, growth_interval: 2}",
      "{policy: dynamic, preset: chainer, growth_interval: 5}",
      "{policy: dynamic, preset: deepspeed, growth_interval: 2}",
      "{policy: dynamic, preset: flax, growth_interval: 2}",
      "{policy: dynamic, preset: nnabla, growth_interval: 2}",
      "{policy: dynamic, preset: marian, growth_interval: 2}",
  };
  const std::vector<std::pair<int, int>> steps = {{1, 0},   {5, 2},   {6, 9},
                                                  {30, -3}, {31, 12}, {200, 1}};
  for (const char* yaml : policies) {
    CAPTURE(yaml);
    Scenario scenario(PolicyOf(yaml), Chain());
    const auto policy = DrivenByHand(yaml);
    int last = 0;
    for (const auto& [number, exponent] : steps) {
      MadeStep step;
      step.Add("fc", "dx", {{exponent, 100000}}).Add("conv2", "dx", {{exponent - 40, 7}});
      double scale = 0;
      for (int attempt = last + 1; attempt <= number; ++attempt) {
        scale = static_cast<float>(policy->Scale());  // chainer's own is a double
        scaling::StepOutcome told;
        // In bin 2^15 of the scaled values 16/32768 of 100000 lie above 65520.
        told.overflow = std::ldexp(scale, exponent) >= 0x1p15;
        policy->Update(told);
      }
      last = number;
      const auto rows = scenario.Judge(number, 1, step.tensors);
      REQUIRE(rows.size() == 2);
      CHECK(rows[0].scale == scale);
      CHECK(rows[1].scale == scale);
    }
  }
}

TEST_CASE("logmax gets the upper end of the highest exponent of dw, or an overflow") {
  const char* yaml = "{policy: logmax}";
  Scenario scenario(PolicyOf(yaml), Chain());
  const auto policy = DrivenByHand(yaml);
  for (int number = 1; number <= 40; ++number) {
    const int dw_exponent = -6 + number % 5;
    const bool overflow = number == 20;
    MadeStep step;
    step.Add("fc", "dw", {{dw_exponent, 3}, {-20, 1}}, 1, kFp32);
    step.Add("fc", "dx", {{overflow ? 90 : -10, 4}});
    const double scale = policy->Scale();
    scaling::StepOutcome told;
    told.overflow = overflow;
    told.amax = overflow ? INFINITY : std::ldexp(1.0, dw_exponent + 1);
    policy->Update(told);
    const auto rows = scenario.Judge(number, 1, step.tensors);
    CHECK(rows[1].scale == scale);
    CHECK(rows[0].scale == 1);
  }
  CHECK(policy->Scale() > 1);
}

// Edge: 0.125 * 65504 = 8188 at S = 65536; |x| above 8188 / 65536 = 0.1249... counts.
TEST_CASE("histogram counts the values above its edge") {
  const char* yaml = "{policy: histogram, update_period: 2, threshold: 0.2}";
  Scenario scenario(PolicyOf(yaml), Chain());
  MadeStep quiet, loud;
  quiet.Add("fc", "dx", {{-3, 19}, {-10, 81}});  // 19 of 100 above
  loud.Add("fc", "dx", {{-3, 30}, {-10, 70}});
  CHECK(scenario.Judge(1, 1, quiet.tensors)[0].scale == 65536);
  CHECK(scenario.Judge(2, 1, quiet.tensors)[0].scale == 65536);
  CHECK(scenario.Judge(3, 1, quiet.tensors)[0].scale == 131072);  // doubled after two
  CHECK(scenario.Judge(4, 1, loud.tensors)[0].scale == 131072);
  CHECK(scenario.Judge(5, 1, loud.tensors)[0].scale == 65536);
}

TEST_CASE("layerwise_dynamic: the layer whose dx overflows falls, batch norm carries what comes") {
  Scenario scenario(
      PolicyOf("{policy: layerwise_dynamic, init_scale: 1024, layers: [{match: conv2, init_scale: "
               "16}]}"),
      Chain());
  MadeStep step;
  step.Add("loss", "dx", {{0, 1}}).Add("fc", "dx", {{7, 9}}).Add("bn2", "dx", {{0, 1}});
  step.Add("conv2", "dx", {{0, 1}});
  const auto first = scenario.Judge(1, 1, step.tensors);
  CHECK(ScaleOf(first, "loss", "dx") == 1024);  // the S of the layer nearest the loss
  CHECK(ScaleOf(first, "fc", "dx") == 1024);    // 2^7 * 2^10 overflows
  CHECK(ScaleOf(first, "bn2", "dx") == 1024);
  CHECK(ScaleOf(first, "conv2", "dx") == 16);
  const auto second = scenario.Judge(2, 1, step.tensors);
  CHECK(ScaleOf(second, "fc", "dx") == 512);
  CHECK(ScaleOf(second, "bn2", "dx") == 512);
  CHECK(ScaleOf(second, "conv2", "dx") == 8);  // it got inf, as in training
  const auto later = scenario.Judge(20, 1, step.tensors);
  CHECK(ScaleOf(later, "fc", "dx") == 256);  // 2^7 * 2^8 is below 65520
  CHECK(ScaleOf(later, "conv2", "dx") == 4);
}

TEST_CASE("layerwise_dynamic: a layer that chooses nothing hands on what overflowed in it") {
  Scenario scenario(PolicyOf("{policy: layerwise_dynamic, init_scale: 1024}"), Chain());
  MadeStep step;
  step.Add("fc", "dx", {{0, 1}}).Add("bn2", "dx", {{7, 9}}).Add("conv2", "dx", {{0, 1}});
  scenario.Judge(1, 1, step.tensors);
  const auto rows = scenario.Judge(2, 1, step.tensors);
  CHECK(ScaleOf(rows, "fc", "dx") == 1024);
  CHECK(ScaleOf(rows, "conv2", "dx") == 512);
}

TEST_CASE("layerwise_dynamic: what saturates goes on as a number") {
  Scenario scenario(PolicyOf("{policy: layerwise_dynamic, init_scale: 1024}"), Chain());
  NumberFormat saturating = kFp16;
  saturating.saturate = true;
  MadeStep step;
  step.Add("fc", "dx", {{7, 9}}, 1, saturating).Add("conv2", "dx", {{0, 1}});
  scenario.Judge(1, 1, step.tensors);
  CHECK(ScaleOf(scenario.Judge(2, 1, step.tensors), "fc", "dx") == 1024);
}

TEST_CASE("a per-tensor scale makes up for another S, unless the policy decides layer by layer") {
  MadeStep step;
  step.Add("fc", "dx", {{0, 1}}, 48).Add("fc", "y", {{0, 1}}, 3).Add("conv2", "dx", {{0, 1}}, 16);
  step.tensors[0].per_tensor_scale = 3, step.tensors[1].per_tensor_scale = 3;
  Scenario fixed(PolicyOf("{policy: fixed, scale: 128}"), Chain());
  const auto rows = fixed.Judge(1, 1, step.tensors);
  CHECK(ScaleOf(rows, "fc", "dx") == 48);
  CHECK(ScaleOf(rows, "conv2", "dx") == 128);
  CHECK(ScaleOf(rows, "fc", "y") == 3);
  Scenario own(PolicyOf("{policy: layerwise_dynamic, init_scale: 1024}"), Chain());
  CHECK(ScaleOf(own.Judge(1, 1, step.tensors), "fc", "dx") == 1024);
}

TEST_CASE("adaptive: the smallest power of two that keeps what the target asks for") {
  MadeStep step;
  step.Add("loss", "dx", {{-3, 100}}).Add("fc", "dx", {{-30, 2}, {-28, 998}});
  step.Add("bn2", "dx", {{-27, 10}}).Add("conv2", "dx", {{-34, 100}, {-1, 1}});
  const std::string common = "policy: adaptive, method: exact_range, underflow_target: ";

  SUBCASE("exact_range") {
    Scenario scenario(PolicyOf("{" + common + "0.001, headroom_bits: 4}"), Chain());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(ScaleOf(rows, "loss", "dx") == 1);
    CHECK(ScaleOf(rows, "fc", "dx") == 32);  // 2 of 1000 are too many: 2^-30 * 32 = 2^-25
    CHECK(ScaleOf(rows, "bn2", "dx") == 32);
    CHECK(ScaleOf(rows, "conv2", "dx") == 512);
    CHECK(rows[1].underflow_pct_nonzero == 0);
  }
  SUBCASE("a looser target") {
    Scenario scenario(PolicyOf("{" + common + "0.01, headroom_bits: 4}"), Chain());
    CHECK(ScaleOf(scenario.Judge(1, 1, step.tensors), "fc", "dx") == 8);
  }
  SUBCASE("headroom caps it: 2^0 * S stays below 65504 / 2^12") {
    Scenario scenario(PolicyOf("{" + common + "0.001, headroom_bits: 12}"), Chain());
    CHECK(ScaleOf(scenario.Judge(1, 1, step.tensors), "conv2", "dx") == 8);
  }
  SUBCASE("methods of the paper keep within their bounds") {
    Scenario scenario(PolicyOf("{policy: adaptive, scale_upper_bound: 16, accum_upper_bound: 100}"),
                      Chain());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(ScaleOf(rows, "fc", "dx") == 16);     // SB
    CHECK(ScaleOf(rows, "conv2", "dx") == 64);  // AB / S_in = 6.25, as a power of two 4
  }
  SUBCASE("method fixed is that layer's alpha") {
    Scenario scenario(PolicyOf("{policy: adaptive, method: fixed, scale: 8, init_scale: 2}"),
                      Chain());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(ScaleOf(rows, "loss", "dx") == 2);
    CHECK(ScaleOf(rows, "fc", "dx") == 16);
    CHECK(ScaleOf(rows, "conv2", "dx") == 128);
  }
  SUBCASE("another format has another smallest number") {
    config::WhatIfConfig choice = PolicyOf("{" + common + "0.001, headroom_bits: 0}");
    choice.format = kFp8E5M2;
    Scenario scenario(choice, Chain());
    CHECK(ScaleOf(scenario.Judge(1, 1, step.tensors), "fc", "dx") == 8192);  // 2^-17 / 2^-30
  }
}

config::ModelConfig WithAttention() {
  config::ModelConfig model;
  for (const auto& [name, kind] : std::vector<std::pair<std::string, std::string>>{
           {"qkv", "linear"}, {"att", "attention"}, {"out", "linear"}}) {
    config::LayerConfig& layer = model.layers.emplace_back();
    layer.name = name;
    layer.kind = kind;
  }
  return model;
}

TEST_CASE("gradients within attention carry the S that arrives, or their own choice") {
  MadeStep step;
  step.Add("loss", "dx", {{0, 1}}).Add("out", "dx", {{0, 1}});
  for (const char* tensor : {"dv", "ds", "dq", "dk"}) step.Add("att", tensor, {{0, 1}});
  const std::string fixed = "policy: adaptive, method: fixed, scale: 2";
  SUBCASE("each by its own rule") {
    Scenario scenario(PolicyOf("{" + fixed + ", layers: [{match: att.ds, scale: 8}]}"),
                      WithAttention());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(ScaleOf(rows, "out", "dx") == 2);
    CHECK(ScaleOf(rows, "att", "dv") == 4);
    CHECK(ScaleOf(rows, "att", "ds") == 16);
    CHECK(ScaleOf(rows, "att", "dq") == 32);
    CHECK(ScaleOf(rows, "att", "dk") == 32);
  }
  SUBCASE("attention: false hands S on") {
    Scenario scenario(PolicyOf("{" + fixed + ", attention: false}"), WithAttention());
    const auto rows = scenario.Judge(1, 1, step.tensors);
    for (const char* tensor : {"dv", "ds", "dq", "dk"}) CHECK(ScaleOf(rows, "att", tensor) == 2);
  }
  SUBCASE("ds that is not rounded decides nothing") {
    step.tensors.erase(step.tensors.begin() + 3);
    Scenario scenario(PolicyOf("{" + fixed + "}"), WithAttention());
    CHECK(ScaleOf(scenario.Judge(1, 1, step.tensors), "att", "dq") == 4);
  }
  SUBCASE("layerwise_dynamic: the one that overflows falls") {
    MadeStep loud;
    loud.Add("loss", "dx", {{0, 1}}).Add("out", "dx", {{0, 1}});
    for (const char* tensor : {"dv", "ds", "dq", "dk"})
      loud.Add("att", tensor, {{std::string(tensor) == "ds" ? 7 : 0, 9}});
    Scenario scenario(PolicyOf("{policy: layerwise_dynamic, init_scale: 1024}"), WithAttention());
    CHECK(ScaleOf(scenario.Judge(1, 1, loud.tensors), "att", "ds") == 1024);
    const auto rows = scenario.Judge(2, 1, loud.tensors);
    CHECK(ScaleOf(rows, "att", "ds") == 512);
    CHECK(ScaleOf(rows, "att", "dv") == 1024);
    CHECK(ScaleOf(rows, "out", "dx") == 1024);
  }
}

// conv1 -> relu -> {conv2, add}: the sum at relu takes the larger S where it fits.
TEST_CASE("where branches meet the largest scale that fits is taken") {
  config::ModelConfig model;
  for (const auto& [name, kind] :
       std::vector<std::pair<std::string, std::string>>{{"conv1", "conv2d"},
                                                        {"relu", "relu"},
                                                        {"conv2", "conv2d"},
                                                        {"add", "add"},
                                                        {"fc", "linear"}}) {
    config::LayerConfig& layer = model.layers.emplace_back();
    layer.name = name;
    layer.kind = kind;
  }
  model.layers[3].inputs = {"conv2", "relu"};
  const auto choice =
      PolicyOf("{policy: adaptive, method: fixed, scale: 1, layers: [{match: conv2, scale: 64}]}");
  for (const auto& [exponent, expected] : std::map<int, double>{{0, 64}, {8, 64}, {10, 1}}) {
    MadeStep step;
    step.Add("fc", "dx", {{0, 1}}).Add("conv2", "dx", {{0, 1}}).Add("relu", "dy", {{exponent, 1}});
    Scenario scenario(choice, model);
    const auto rows = scenario.Judge(1, 1, step.tensors);
    CHECK(ScaleOf(rows, "conv2", "dx") == 64);
    CHECK(ScaleOf(rows, "relu", "dy") == expected);
  }
}

TEST_CASE("inf and NaN count as an overflow unless the run's own scale explains them") {
  const char* yaml = "{policy: dynamic, init_scale: 8, growth_interval: 1000}";
  MadeStep explained;  // 2^4 * 2^14 overflowed in the run; what came after it is NaN
  explained.Add("fc", "dx", {{4, 100}}, 0x1p14).Add("conv2", "dx", {{-9, 1}}, 0x1p14);
  explained.bins[1].nan = 50;
  MadeStep unexplained;
  unexplained.Add("fc", "dx", {{4, 100}}, 1);
  unexplained.bins[0].inf = 1;
  Scenario a(PolicyOf(yaml), Chain()), b(PolicyOf(yaml), Chain());
  a.Judge(1, 1, explained.tensors);
  b.Judge(1, 1, unexplained.tensors);
  CHECK(a.Judge(2, 1, explained.tensors)[0].scale == 8);
  CHECK(b.Judge(2, 1, unexplained.tensors)[0].scale == 4);
}

TEST_CASE("a format that saturates does not overflow to inf") {
  const char* yaml = "{policy: dynamic, init_scale: 65536, growth_interval: 1000}";
  NumberFormat saturating = kFp16;
  saturating.saturate = true;
  MadeStep step;
  step.Add("fc", "dx", {{4, 100}}, 1, saturating);
  Scenario scenario(PolicyOf(yaml), Chain());
  scenario.Judge(1, 1, step.tensors);
  const auto rows = scenario.Judge(2, 1, step.tensors);
  CHECK(rows[0].scale == 65536);
  CHECK(rows[0].overflow == 100);
}

TEST_CASE("no rows from the step on in which the policy ends the run") {
  Scenario scenario(PolicyOf("{policy: dynamic, preset: deepspeed, init_scale: 2, hysteresis: 1, "
                             "error_at_min_scale: true}"),
                    Chain());
  MadeStep step;
  step.Add("fc", "dx", {{20, 9}});
  CHECK(scenario.Judge(1, 1, step.tensors).size() == 1);  // 2 -> 1, the floor
  CHECK(scenario.ended().empty());
  CHECK(scenario.Judge(2, 1, step.tensors).empty());
  CHECK(!scenario.ended().empty());
  CHECK(scenario.Judge(3, 1, step.tensors).empty());
}

TEST_CASE("a scale that has reached zero loses everything") {
  Scenario scenario(PolicyOf("{policy: dynamic, backoff_factor: 1e-30}"), Chain());
  MadeStep step;
  step.Add("fc", "dx", {{20, 9}});
  scenario.Judge(1, 1, step.tensors);
  scenario.Judge(2, 1, step.tensors);
  MadeStep small;
  small.Add("fc", "dx", {{0, 9}});
  const auto rows = scenario.Judge(60, 1, small.tensors);
  CHECK(rows[0].underflow_pct_nonzero == 100);
}

TEST_CASE("a scenario goes on from its saved state") {
  for (const char* yaml : {"{policy: dynamic, preset: cerebras, growth_interval: 7}",
                           "{policy: layerwise_dynamic, growth_interval: 3}", "{policy: logmax}",
                           "{policy: histogram, update_period: 3}", "{policy: none}"}) {
    CAPTURE(yaml);
    Scenario whole(PolicyOf(yaml), Chain()), second(PolicyOf(yaml), Chain());
    MadeStep quiet, loud;
    quiet.Add("fc", "dx", {{-20, 9}}).Add("fc", "dw", {{-3, 2}}, 1, kFp32);
    loud.Add("fc", "dx", {{9, 9}}).Add("fc", "dw", {{2, 2}}, 1, kFp32);
    whole.Judge(1, 1, quiet.tensors);
    whole.Judge(5, 1, loud.tensors);
    CHECK(second.LoadState(whole.SaveState()));
    for (const int step : {9, 10, 33}) {
      const auto a = whole.Judge(step, 1, quiet.tensors), b = second.Judge(step, 1, quiet.tensors);
      CHECK(a[0].scale == b[0].scale);
    }
    CHECK(whole.SaveState() == second.SaveState());
  }
  Scenario plain({}, Chain());
  CHECK(plain.LoadState({}));  // as of an earlier version
  CHECK_THROWS_AS(plain.LoadState({{"last_step", "1"}}), DataError);
  Scenario policy(PolicyOf("{policy: none}"), Chain());
  CHECK_THROWS_AS(policy.LoadState({}), DataError);
  // The entries of a log may change while their names stay.
  CHECK(policy.LoadState(policy.SaveState()));
  CHECK(!policy.LoadState(plain.SaveState()));
  CHECK(!plain.LoadState(policy.SaveState()));
  Scenario slow(PolicyOf("{policy: dynamic, growth_interval: 70}"), Chain());
  Scenario fast(PolicyOf("{policy: dynamic, growth_interval: 7}"), Chain());
  CHECK(!fast.LoadState(slow.SaveState()));
}

TEST_CASE("what cannot be judged is refused") {
  config::WhatIfConfig both = PolicyOf("{policy: none}");
  both.scale = 2;
  CHECK_THROWS_WITH_AS(Scenario(both, Chain()),
                       doctest::Contains("a scale and a policy exclude each other"), ConfigError);
  CHECK_THROWS_WITH_AS(Scenario(PolicyOf("{policy: adaptive, reference: true}"), Chain()),
                       doctest::Contains("scaling.reference"), ConfigError);
}

TEST_SUITE_END();

}  // namespace
}  // namespace ada::judge
