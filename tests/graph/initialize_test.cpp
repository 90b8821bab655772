// Start values: variances of the schemes, constants, reproducibility, files with their refusals.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "error.h"
#include "graph/fake_backend.h"
#include "graph/graph.h"
#include "graph/network/parameters.h"
#include "graph/networks.h"
#include "io/tensor_files/safetensors.h"
#include "temp_folder.h"

namespace ada::graph::test {
namespace {

using config::InitScheme;

Parameter Make(const std::string& name, std::vector<std::int64_t> dims) {
  Parameter parameter{name, std::move(dims), {}, {}};
  std::int64_t numel = 1;
  for (const std::int64_t dim : parameter.dims) numel *= dim;
  parameter.value.shape = {1, 1, 1, numel};
  return parameter;
}

struct SmallModel {
  FakeBackend backend;
  config::ModelConfig model = Model({Conv("c", 4), Layer("b", "batch_norm"), Linear("fc", 10)});
  std::unique_ptr<Graph> graph;
  SmallModel() {
    GraphSpec spec;
    spec.model = &model;
    spec.input = {2, 4, 4, 3};
    graph = Graph::Build(spec, backend);
  }
  std::vector<float> Values(const std::string& name) const {
    for (const Parameter& p : graph->parameters()) {
      if (p.name == name) return {p.value.f32(), p.value.f32() + p.numel()};
    }
    return {};
  }
};

std::string MessageOf(SmallModel& m, const config::InitConfig& init) {
  try {
    Initialize(*m.graph, init, 1, m.backend);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

config::InitRule Rule(InitScheme scheme) {
  config::InitRule rule;
  rule.scheme = scheme;
  return rule;
}

TEST_SUITE("cpu") {
  TEST_CASE("fans, gains and plain distributions, by glob; zero gamma") {
    SmallModel m;
    config::InitConfig init;
    init.fan = config::InitRule::Fan::kOut, init.gain = 3;
    const std::vector<float> conv = StartValues(Make("c.weight", {64, 32, 3, 5}), init, 7);
    double square = 0;
    for (const float v : conv) square += double{v} * v / conv.size();
    CHECK(square == doctest::Approx(9.0 / (64 * 15)).epsilon(0.03));

    const auto entry = [](const char* match, InitScheme scheme) {
      config::InitParametersConfig made;
      made.match = match, made.scheme = scheme;
      return made;
    };
    init.parameters = {entry("*", InitScheme::kNormal), entry("fc.*", InitScheme::kUniform),
                       entry("*.bias", InitScheme::kConstant),
                       entry("b.*", InitScheme::kXavierNormal)};
    init.parameters[0].std = 0.01, init.parameters[1].bound = 0.02;
    init.parameters[2].value = 0.75;
    Initialize(*m.graph, init, 1, m.backend);
    for (const float v : m.Values("c.weight")) CHECK(std::abs(v) < 0.06f);
    float largest = 0;
    for (const float v : m.Values("fc.weight")) largest = std::max(largest, std::abs(v));
    CHECK(largest < 0.02f);
    CHECK(largest > 0.019f);
    CHECK(m.Values("fc.bias") == std::vector<float>(10, 0.75f));
    // Schemes with fans leave vectors alone.
    CHECK(m.Values("b.weight") == std::vector<float>(4, 1.0f));
    CHECK(m.Values("b.bias") == std::vector<float>(4, 0.0f));
    CHECK(m.Values("b.running_mean") == std::vector<float>(4, 0.0f));
    CHECK(m.Values("b.running_var") == std::vector<float>(4, 1.0f));

    SmallModel residual;
    residual.model =
        Model({Conv("c", 3), Layer("b", "batch_norm"), Layer("a", "add"), Linear("fc", 10)});
    residual.model.layers[2].inputs = {"b", "input"};
    GraphSpec spec;
    spec.model = &residual.model, spec.input = {2, 4, 4, 3};
    residual.graph = Graph::Build(spec, residual.backend);
    config::InitConfig zero;
    zero.zero_gamma = true;
    Initialize(*residual.graph, zero, 1, residual.backend);
    CHECK(residual.Values("b.weight") == std::vector<float>(3, 0.0f));
    CHECK(residual.Values("b.running_var") == std::vector<float>(3, 1.0f));
  }

  TEST_CASE("variance and range of each scheme") {
    struct Case {
      InitScheme scheme;
      bool uniform;
      double fans;  // the sum under 2 / fans
    };
    const std::vector<std::int64_t> conv = {64, 32, 3, 5}, linear = {200, 150};
    const double in = 32 * 15, out = 64 * 15;
    for (const Case& c : std::vector<Case>{{InitScheme::kHeNormal, false, in},
                                           {InitScheme::kHeUniform, true, in},
                                           {InitScheme::kXavierNormal, false, in + out},
                                           {InitScheme::kXavierUniform, true, in + out},
                                           {InitScheme::kLecunNormal, false, 2 * in},
                                           {InitScheme::kLecunUniform, true, 2 * in}}) {
      const std::vector<float> w = StartValues(Make("c.weight", conv), Rule(c.scheme), 7);
      double mean = 0, square = 0, largest = 0;
      for (const float v : w) {
        mean += v / w.size();
        square += double{v} * v / w.size();
        largest = std::max(largest, std::abs(double{v}));
      }
      const double sd = std::sqrt(2 / c.fans);
      CHECK(std::abs(mean) < 4 * sd / std::sqrt(w.size()));
      CHECK(square == doctest::Approx(sd * sd).epsilon(0.03));
      if (c.uniform) CHECK(largest <= sd * std::sqrt(3.0) * 1.000001);
      CHECK(largest > sd * (c.uniform ? 1.72 : 3.5));
    }
    double square = 0;
    for (const float v : StartValues(Make("fc.weight", linear), Rule(InitScheme::kHeNormal), 7)) {
      square += double{v} * v / 30000;
    }
    CHECK(square == doctest::Approx(2.0 / 150).epsilon(0.03));
  }

  TEST_CASE("vectors") {
    for (const auto& [name, value] :
         std::vector<std::pair<std::string, float>>{{"b.weight", 1},
                                                    {"b.bias", 0},
                                                    {"b.running_mean", 0},
                                                    {"b.running_var", 1},
                                                    {"fc.bias", 0}}) {
      CHECK(StartValues(Make(name, {3}), Rule(InitScheme::kHeNormal), 7) ==
            std::vector<float>{value, value, value});
    }
  }

  TEST_CASE("seed and name decide, nothing else") {
    const auto values = [](const char* name, std::uint64_t seed) {
      return StartValues(Make(name, {4, 5}), Rule(InitScheme::kHeNormal), seed);
    };
    CHECK(values("a.weight", 1) == values("a.weight", 1));
    CHECK(values("a.weight", 1) != values("a.weight", 2));
    CHECK(values("a.weight", 1) != values("b.weight", 1));
  }

  TEST_CASE("a file overrides the tensors it names") {
    SmallModel m;
    const testing::TempFolder folder;
    const std::string file = folder / "weights.safetensors";
    const std::vector<float> weight(10 * 64, 0.5f), mean = {1, 2, 3, 4}, count = {9};
    SafetensorsWriter writer;
    writer.Add("fc.weight", {10, 64}, weight);
    writer.Add("b.running_mean", {4}, mean);
    writer.Add("b.num_batches_tracked", {}, count);
    writer.WriteAtomically(file);
    config::InitConfig init;
    init.weights = file;
    CHECK(MessageOf(m, init) == "no error");
    CHECK(m.Values("fc.weight") == weight);
    CHECK(m.Values("b.running_mean") == mean);
    CHECK(m.Values("b.running_var") == std::vector<float>(4, 1.0f));
    Parameter conv = Make("c.weight", {4, 3, 3, 3});
    CHECK(m.Values("c.weight") == StartValues(conv, Rule(InitScheme::kHeNormal), 1));
  }

  TEST_CASE("unknown names and wrong shapes are refused") {
    struct Case {
      std::string name;
      std::vector<std::int64_t> shape;
      std::string message;
    };
    for (const Case& c : std::vector<Case>{
             {"fc.wieght",
              {2},
              "tensor fc.wieght: the network has none of this name; did you mean "
              "'fc.weight'?; model.init.ignore_unknown: true leaves such tensors out"},
             {"module.fc.weight",
              {2},
              "tensor module.fc.weight: the network has none of this name; it would "
              "be 'fc.weight' without 'module.', a prefix that wrappers such as "
              "DistributedDataParallel add; model.init.ignore_unknown: true leaves "
              "such tensors out"},
             {"c.weight",
              {4, 3, 1, 3},
              "tensor c.weight: expected shape [4, 3, 3, 3], found "
              "[4, 3, 1, 3]; model.init.skip lets a layer start without the file"}}) {
      SmallModel m;
      const testing::TempFolder folder;
      const std::string file = folder / "weights.safetensors";
      std::vector<float> values(c.shape.size() == 1 ? 2 : 36);
      SafetensorsWriter writer;
      writer.Add(c.name, c.shape, values);
      writer.WriteAtomically(file);
      config::InitConfig init;
      init.weights = file;
      CHECK(MessageOf(m, init) == file + ": " + c.message);
    }
  }

  TEST_CASE("a file of a part of the network says what is missing; require_all makes it an error") {
    SmallModel m;
    const testing::TempFolder folder;
    const std::string file = folder / "weights.safetensors";
    const std::vector<float> weight(10 * 64, 0.5f);
    SafetensorsWriter writer;
    writer.Add("fc.weight", {10, 64}, weight);
    writer.WriteAtomically(file);
    config::InitConfig init;
    init.weights = file;
    const std::string loaded = file +
                               ": loaded 1 of 8 tensors; missing c.weight, c.bias, b.weight, "
                               "b.bias, b.running_mean, b.running_var, fc.bias";
    const WeightsCover cover = Initialize(*m.graph, init, 1, m.backend);
    CHECK(cover.MissingText() ==
          loaded +
              ": these start as without a file (model.init.require_all: true makes this an "
              "error)");
    CHECK(cover.IgnoredText().empty());
    init.require_all = true;
    CHECK(MessageOf(m, init) == loaded + " (model.init.require_all: true)");
    CHECK(Initialize(*m.graph, {}, 1, m.backend).MissingText().empty());
  }

  TEST_CASE("ignore_unknown leaves tensors of others out, but not all of them") {
    SmallModel m;
    const testing::TempFolder folder;
    const std::string file = folder / "weights.safetensors";
    const std::vector<float> values(10);
    config::InitConfig init;
    init.weights = file;
    init.ignore_unknown = true;
    SafetensorsWriter some;
    some.Add("fc.bias", {10}, values);
    some.Add("head.bias", {10}, values);
    some.WriteAtomically(file);
    const WeightsCover cover = Initialize(*m.graph, init, 1, m.backend);
    CHECK(cover.loaded == 1);
    CHECK(cover.IgnoredText() ==
          file + ": left out 1 tensor that the network does not have: head.bias");
    SafetensorsWriter none;
    none.Add("head.bias", {10}, values);
    none.WriteAtomically(file);
    CHECK(MessageOf(m, init).find(": loaded 0 of 8 tensors; missing c.weight, ") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace ada::graph::test
