// Formats at borders, as ops and lists see them, and what the memory plan makes of their sizes.
#include "graph/network/tensor_storage.h"

#include <doctest/doctest.h>

#include <map>

#include "graph/fake_backend.h"
#include "graph/networks.h"
#include "graph/plan/plan.h"
#include "graph/precisions.h"

namespace ada::graph::test {
namespace {

using Table = std::map<std::string, std::string>;

// A layer's formats in the order of LayerFormats; layers that are not named: fp16.
Precision PrecisionOf(std::map<std::string, LayerFormats> by_layer) {
  Precision precision = Uniform(kFp16);
  precision.formats_of = [base = precision.base, by_layer](const std::string& layer) {
    const auto found = by_layer.find(layer);
    return found == by_layer.end() ? base : found->second;
  };
  return precision;
}

struct Built {
  FakeBackend backend;
  config::ModelConfig model;
  std::map<std::string, ScalerRequest> requests;
  std::unique_ptr<Graph> graph;

  Built(const config::ModelConfig& layers, const Precision& precision, bool fuse)
      : Built(TestNetwork{"", layers, {4, 8, 8, 3}}, precision, fuse) {}
  Built(const TestNetwork& network, const Precision& precision, bool fuse) : model(network.model) {
    GraphSpec spec;
    spec.model = &model;
    spec.precision = precision;
    spec.input = network.input;
    spec.task = network.task;
    spec.fuse = fuse;
    spec.rule_for = [this](const ScalerRequest& request) {
      requests.emplace(request.layer, request);
      return scaling::LayerRule{};
    };
    graph = Graph::Build(spec, backend);
  }
  Table Formats() const {  // by "layer tensor"
    Table table;
    for (const RoundingPoint& point : graph->roundings()) {
      if (point.layer != "input")
        table[point.layer + " " + point.tensor] = FormatName(point.format);
    }
    return table;
  }
};

std::string Of(const Tensor& tensor) {
  static const std::vector<std::string> storages = {"", " in fp16", " in bf16"};
  return FormatName(tensor.format) + storages[static_cast<std::size_t>(tensor.storage)];
}
std::string Of(const Gradient& gradient) { return Of(gradient.tensor); }

const LayerFormats kAllFp32 = {kFp32, kFp32, kFp32, kFp32};

TEST_SUITE("cpu") {
  TEST_CASE("an fp32 head after an fp16 body, with the cast that joins them") {
    const config::ModelConfig model =
        Model({Conv("c", 4), Layer("b", "batch_norm"), Layer("r", "relu"),
               Layer("pool", "global_avg_pool"), Layer("cast", "scale"), Linear("fc", 10)});
    for (const bool fuse : {true, false}) {
      const Built built(model, PrecisionOf({{"cast", kAllFp32}, {"fc", kAllFp32}}), fuse);
      CHECK(built.Formats() == Table{{"c w", "fp16"},
                                     {"c y", "fp16"},
                                     {"b y", "fp16"},
                                     {"pool y", "fp16"},
                                     {"cast y", "fp32"},
                                     {"fc w", "fp32"},
                                     {"fc y", "fp32"},
                                     {"loss dx", "fp32"},
                                     {"fc dw", "fp32"},
                                     {"fc dx", "fp32"},
                                     {"cast dx", "fp16"},
                                     {"pool dx", "fp16"},
                                     {"b dx", "fp16"},
                                     {"c dw", "fp32"}});
      REQUIRE(built.backend.casts.size() == 1);
      const backend::ScaleSpec& cast = built.backend.casts[0];
      CHECK(Of(cast.x) == "fp16 in fp16");
      CHECK(Of(cast.y) == "fp32");
      CHECK(Of(cast.dy) == "fp32");
      CHECK(Of(cast.dx) == "fp16 in fp16");
      CHECK(built.requests.at("cast").gradient_format == kFp16);
      CHECK(built.requests.at("fc").gradient_format == kFp32);
      std::vector<std::string> rows;
      for (const LayerRow& row : built.graph->layers()) rows.push_back(FormatName(row.format));
      CHECK(rows == std::vector<std::string>{"fp16", "fp16", "fp16", "fp16", "fp32", "fp32"});
    }
  }

  TEST_CASE("without a cast the head's own dx is what the body can take") {
    const Built built(
        Model({Conv("c", 4), Layer("r", "relu"), Layer("flat", "flatten"), Linear("fc", 10)}),
        PrecisionOf({{"fc", kAllFp32}}), true);
    const backend::LinearSpec& fc = built.backend.linears[0];
    CHECK(Of(fc.x) == "fp16 in fp16");
    CHECK(Of(fc.y) == "fp32");
    CHECK(fc.w_format == kFp32);
    CHECK(Of(fc.dy) == "fp32");
    CHECK(Of(fc.dx) == "fp16 in fp16");  // made by c, through flatten and relu
    CHECK(built.requests.at("fc").gradient_format == kFp16);
    CHECK(built.Formats().at("loss dx") == "fp32");
  }

  TEST_CASE("an addition of two formats, relus between") {
    const config::ModelConfig model =
        Model({Conv("c0", 4), Conv("a", 4, {"c0"}), Layer("ra", "relu"), Conv("b", 4, {"c0"}),
               Layer("join", "add", {"ra", "b"}), Layer("r", "relu"), Linear("fc", 10, {"r"})});
    const Built built(model,
                      PrecisionOf({{"c0", {kFp16, kFp16, kFp8E5M2, kFp16}},
                                   {"a", {kBf16, kFp8E4M3, kFp16, kBf16}},
                                   {"join", {kFp32, kFp32, kBf16, kFp32}}}),
                      true);
    CHECK(built.Formats() == Table{{"c0 w", "fp16"},
                                   {"c0 y", "fp16"},
                                   {"a w", "fp8_e4m3"},
                                   {"a y", "bf16"},
                                   {"b w", "fp16"},
                                   {"b y", "fp16"},
                                   {"join y", "fp32"},
                                   {"fc w", "fp16"},
                                   {"fc y", "fp16"},
                                   {"loss dx", "fp16"},
                                   {"fc dw", "fp32"},
                                   {"fc dx", "bf16"},  // join's, through r
                                   {"b dw", "fp32"},
                                   {"b dx", "fp8_e5m2"},
                                   {"a dw", "bf16"},
                                   {"a dx", "fp8_e5m2"},
                                   {"c0 dy", "fp8_e5m2"},
                                   {"c0 dw", "fp16"}});
    const FakeBackend& backend = built.backend;
    REQUIRE(backend.convolutions.size() == 3);
    CHECK(Of(backend.additions[0].x[0]) == "bf16 in bf16");
    CHECK(Of(backend.additions[0].x[1]) == "fp16 in fp16");
    CHECK(Of(backend.relus[0].y) == "bf16 in bf16");
    CHECK(Of(backend.relus[1].y) == "fp32");
    // The addition's gradient goes to both sides as it is; ra hands it on exactly.
    CHECK(Of(backend.relus[1].dx) == "bf16 in bf16");
    CHECK(Of(backend.convolutions[2].dy) == "bf16 in bf16");
    CHECK(Of(backend.relus[0].dx) == "bf16 in bf16");
    CHECK(Of(backend.convolutions[1].dy) == "bf16 in bf16");
    CHECK(Of(backend.branch_sums[0].sum) == "fp8_e5m2 in fp16");
    CHECK(backend.convolutions[1].dw_format == kBf16);
    CHECK(backend.convolutions[1].dw.storage == Storage::kF32);
    CHECK(built.requests.at("a").gradient_format == kFp8E5M2);
  }

  TEST_CASE("a chain keeps the format of the batch norm apart from that of the sum") {
    const config::ModelConfig model =
        Model({Conv("c", 3), Layer("b", "batch_norm"), Layer("join", "add", {"b", "input"}),
               Layer("r", "relu"), Linear("fc", 10)});
    const Precision precision = PrecisionOf(
        {{"b", {kBf16, kBf16, kBf16, kFp32}}, {"join", {kFp32, kFp32, kFp8E5M2, kFp32}}});
    const Built built(model, precision, true);
    const backend::BatchNormSpec& spec = built.backend.batch_norms[0];
    CHECK(spec.relu);
    CHECK(spec.y_format == kBf16);
    CHECK(Of(spec.out) == "fp32");
    CHECK(Of(spec.addend) == "fp16 in fp16");
    CHECK(Of(spec.dy) == "fp8_e5m2 in fp16");
    CHECK(Of(spec.dx) == "fp16 in fp16");
  }

  TEST_CASE("a rule is asked with the formats that its op then has") {
    for (const TestNetwork& network : AllNetworks()) {
      for (const bool fuse : {true, false}) {
        CAPTURE(network.name);
        const Built built(network, Patchwork(), fuse);
        std::size_t rules = 0;
        const auto check = [&](const std::string& layer, const Gradient& dy, const Gradient& dx) {
          if (!dx) return;
          CHECK(built.requests.at(layer).gradient_format == dx.tensor.format);
          CHECK(built.requests.at(layer).dy_format == dy.tensor.format);
          ++rules;
        };
        for (const auto& spec : built.backend.convolutions) check(spec.layer, spec.dy, spec.dx);
        for (const auto& spec : built.backend.transposed) check(spec.layer, spec.dy, spec.dx);
        for (const auto& spec : built.backend.linears) check(spec.layer, spec.dy, spec.dx);
        CHECK(rules + built.backend.casts.size() >= built.requests.size());
        CHECK(rules > 0);
      }
    }
  }

  TEST_CASE("each buffer has its tensor's own size") {
    for (const Precision& precision :
         {Uniform(kFp16), Uniform(kCb16), Patchwork(), HybridFp8(), Uniform(kFp8E4M3)}) {
      const Network network = Resolve(WithCasts(), {1, 6, 6, 3});
      const NetworkStorage storage = ResolveStorage(network, precision);
      PlanSpec spec;
      spec.images = 5;
      spec.storage = &storage;
      spec.rules.resize(network.nodes.size());
      const Plan plan = MakePlan(network, spec);
      const auto bytes = [&](int value, const TensorStorage& stored_as) {
        return static_cast<std::size_t>(5 * network.shape(value).numel()) *
               (stored_as.has_per_tensor_scale ? 4 : BytesOf(StorageFor(stored_as.format)));
      };
      for (std::size_t value = 0; value < plan.value_buffers.size(); ++value) {
        CHECK(plan.buffers[plan.value_buffers[value]].bytes ==
              bytes(static_cast<int>(value), storage.values[value]));
      }
      REQUIRE(!plan.gradients.empty());
      for (const GradientPlan& gradient : plan.gradients) {
        if (gradient.rounds) CHECK(gradient.stored_as == storage.gradients[gradient.value]);
        CHECK(plan.buffers[gradient.buffer].bytes == bytes(gradient.value, gradient.stored_as));
      }
    }
  }

  TEST_CASE("a tensor with a scale of its own lies in fp32; an fp32 tensor has none") {
    const Network network = Resolve(Zoo("lenet"), {1, 28, 28, 1});
    Precision precision = Uniform(kFp8E4M3);
    precision.base.gradients = kFp32;
    for (const bool scaled : {false, true}) {
      precision.scaled_forward = precision.scaled_backward = scaled;
      const NetworkStorage storage = ResolveStorage(network, precision);
      NumberFormat format = kFp8E4M3;
      format.saturate = scaled;
      for (const TensorStorage& value : storage.values) {
        CHECK(value == TensorStorage{format, scaled ? Storage::kF32 : Storage::kF16, scaled});
      }
      for (const TensorStorage& gradient : storage.gradients) {
        CHECK(gradient == TensorStorage{kFp32, Storage::kF32, false});
      }
      for (const TensorStorage& w : storage.weights) CHECK(w.has_per_tensor_scale == scaled);
    }
    precision.scaled_saturate = false;  // overflow: format
    for (const TensorStorage& value : ResolveStorage(network, precision).values)
      CHECK(value == TensorStorage{kFp8E4M3, Storage::kF32, true});
  }
}

}  // namespace
}  // namespace ada::graph::test
