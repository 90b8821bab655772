// Networks of sequences: what their lists name, and that queries, keys and values of one layer are
// the same whether attention takes them side by side or as slices.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "error.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"
#include "graph/precisions.h"

namespace ada::graph::test {
namespace {

using config::LayerConfig;

LayerConfig Attention(const std::string& name, const std::vector<std::string>& inputs) {
  LayerConfig layer = Layer(name, "attention", inputs);
  layer.heads = 2, layer.kv_heads = 1;
  return layer;
}
LayerConfig Slice(const std::string& name, int first, int channels) {
  LayerConfig layer = Layer(name, "slice", {"qkv"});
  layer.first = first, layer.channels = channels;
  return layer;
}
LayerConfig Positions(const std::string& name, int context) {
  LayerConfig layer = Layer(name, "position_embedding");
  layer.context = context;
  return layer;
}

// A small ViT of 17 tokens.
config::ModelConfig Vit(bool fused) {
  std::vector<LayerConfig> layers = {Conv("patch", 8), Layer("token", "class_token"),
                                     Positions("place", 20), Layer("ln", "layer_norm"),
                                     Linear("qkv", 16)};
  if (fused) {
    layers.push_back(Attention("attn", {"qkv"}));
  } else {
    for (const LayerConfig& slice : {Slice("q", 0, 8), Slice("k", 8, 4), Slice("v", 12, 4)})
      layers.push_back(slice);
    layers.push_back(Attention("attn", {"q", "k", "v"}));
  }
  layers.push_back(Linear("proj", 8));
  layers.push_back(Layer("add", "add", {"place", "proj"}));
  layers.push_back(Layer("first", "select"));
  layers.push_back(Linear("fc", 10));
  return Model(layers);
}

struct Trained {
  explicit Trained(bool fused, int threads = 2, LayerFormats formats = {kFp16, kFp16, kFp16, kFp32})
      : model(Vit(fused)), backend(backend::cpu::MakeCpuBackend(threads)) {
    GraphSpec spec;
    spec.model = &model;
    spec.precision.base = formats;
    spec.input = {3, 4, 4, 3};
    spec.rule_for = [this](const ScalerRequest& request) {
      asked.push_back(request.layer);
      scaling::LayerRule rule;
      rule.method = scaling::LayerMethod::kApproxRange;
      rule.fan = request.fan_exact;
      rule.u_min = request.gradient_format.smallest_subnormal();
      rule.u_max = request.gradient_format.largest();
      return rule;
    };
    graph = Graph::Build(spec, *backend);
    Initialize(*graph, {}, 1, *backend);
    std::vector<float> images(3 * 48);
    for (std::size_t i = 0; i < images.size(); ++i)
      images[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 32;
    const std::int32_t labels[] = {1, 7, 3};
    backend::Pass pass;
    pass.rows = 3, pass.loss_terms = 3, pass.count = true, pass.training = true;
    pass.loss_scale = 0x1p-6f;
    graph->RefreshWeights(pass);
    graph->SetBatch(images.data(), labels, 3);
    graph->Forward(pass);
    graph->Backward(pass);
    graph->Collect(pass);
  }
  std::vector<float> GradientOf(const std::string& name) const {
    for (const Parameter& parameter : graph->parameters())
      if (parameter.name == name) {
        const float* values = parameter.gradient.f32();
        return {values, values + parameter.numel()};
      }
    throw InternalError("no parameter " + name);
  }
  const RoundingPoint& Point(const std::string& layer, const std::string& tensor) const {
    for (const RoundingPoint& point : graph->roundings())
      if (point.layer == layer && point.tensor == tensor) return point;
    throw InternalError("no rounding " + layer + "." + tensor);
  }

  config::ModelConfig model;
  std::vector<std::string> asked;  // names, in the order in which rules were asked for
  std::unique_ptr<backend::Backend> backend;
  std::unique_ptr<Graph> graph;
};

std::string MessageOf(const config::ModelConfig& model) {
  try {
    Resolve(model, {1, 4, 4, 3});
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_SUITE("cpu") {
  TEST_CASE("attention's roundings and decisions stand in the order in which they are made") {
    const Trained trained(true);
    std::vector<std::string> rows, decisions;
    for (const RoundingPoint& point : trained.graph->roundings())
      if (point.layer != "input") rows.push_back(point.layer + "." + point.tensor);
    CHECK(rows == std::vector<std::string>{"patch.w", "patch.y", "token.y",  "place.y", "ln.y",
                                           "qkv.w",   "qkv.y",   "attn.p",   "attn.y",  "proj.w",
                                           "proj.y",  "add.y",   "fc.w",     "fc.y",    "loss.dx",
                                           "fc.dw",   "fc.dx",   "proj.dw",  "proj.dx", "attn.dv",
                                           "attn.ds", "attn.dq", "attn.dk",  "qkv.dy",  "qkv.dw",
                                           "qkv.dx",  "ln.dx",   "place.dy", "patch.dw"});
    for (const ScalePoint& point : trained.graph->scales())
      decisions.push_back((point.scaler ? "" : "branch ") + point.layer);
    CHECK(decisions == std::vector<std::string>{"fc", "proj", "attn.dv", "attn.ds", "attn.dq",
                                                "attn.dk", "branch qkv", "qkv", "branch place"});
    CHECK(trained.Point("attn", "p").stats->numel == 3 * 2 * 17 * 17);
    CHECK(trained.Point("attn", "ds").stats->numel == 3 * 2 * 17 * 17);
    CHECK(trained.Point("qkv", "dy").stats->numel == 3 * 17 * 16);
  }

  // Policies take the last one for the first of the backward pass (Policy::RuleFor).
  TEST_CASE(
      "rules are asked for in the order in which the backward pass decides, from its end on") {
    const Trained trained(true);
    std::vector<std::string> decisions;
    for (const ScalePoint& point : trained.graph->scales())
      if (point.scaler) decisions.push_back(point.layer);
    std::reverse(decisions.begin(), decisions.end());
    CHECK(trained.asked == decisions);
    CHECK(trained.asked.back() == "fc");
  }

  TEST_CASE("one input or slices of it, one thread or two: the same bits") {
    const Trained fused(true), slices(false), alone(true, 1);
    for (const char* name : {"qkv.weight", "qkv.bias", "ln.weight", "token", "place.weight",
                             "patch.weight", "fc.weight"}) {
      CAPTURE(name);
      CHECK(fused.GradientOf(name) == slices.GradientOf(name));
      CHECK(fused.GradientOf(name) == alone.GradientOf(name));
    }
    const RoundingPoint &one = fused.Point("qkv", "dy"), &other = slices.Point("qkv", "dy");
    CHECK(*one.scale == *other.scale);
    CHECK(one.stats->zeros_before == other.stats->zeros_before);
    CHECK(one.stats->max_abs == other.stats->max_abs);
  }

  TEST_CASE("formats that differ from layer to layer") {
    const Trained trained(true, 2, {kBf16, kFp16, kFp8E5M2, kFp32});
    CHECK(trained.Point("attn", "p").format == kBf16);
    CHECK(trained.Point("attn", "ds").format == kFp8E5M2);
    CHECK(trained.Point("qkv", "dy").format == kFp8E5M2);
  }

  TEST_CASE("what does not fit is refused, with both shapes") {
    config::ModelConfig model = Vit(true);
    model.layers[5].heads = 3;
    CHECK(MessageOf(model).find("heads + 2 kv_heads, 5, must divide the channels of qkv") !=
          std::string::npos);
    model = Vit(true);
    model.layers[2].context = 16;
    CHECK(MessageOf(model).find("17 positions, more than context 16") != std::string::npos);
    model = Vit(true);
    model.layers[6].weight_of = "qkv";
    CHECK(MessageOf(model).find("weight_of qkv: its weight is [16, 8], needed is [8, 8]") !=
          std::string::npos);
    model = Model({Layer("e", "embedding"), Linear("fc", 10)});
    model.layers[0].vocabulary = 5, model.layers[0].features = 3;
    CHECK(MessageOf(model).find("one a position") != std::string::npos);
  }
}

}  // namespace
}  // namespace ada::graph::test
