// torch.autocast's formats, layer by layer, against a table by hand from its op lists; which batch
// norms end a branch.
#include <doctest/doctest.h>

#include <map>
#include <set>
#include <utility>

#include "golden_table.h"
#include "graph/network/parameters.h"
#include "graph/network/tensor_storage.h"
#include "graph/networks.h"
#include "layers/layer_kind.h"

namespace ada::graph::test {
namespace {

std::map<std::string, std::string> AutocastOf(const Network& network) {
  const std::vector<LayerFormats> formats = AutocastFormats(network, kBf16);
  REQUIRE(formats.size() == network.nodes.size() + 1);
  std::map<std::string, std::string> by_layer = {{"input", FormatName(formats[0].activations)}};
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const LayerFormats& of = formats[i + 1];
    CHECK(of.product_gradients == of.activations);
    CHECK(of.weights == kBf16);
    CHECK(of.weight_gradients == kFp32);
    by_layer[network.nodes[i].config.name] = FormatName(of.activations);
  }
  return by_layer;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE(
      "autocast: products and what follows them in bf16, the images where convolutions read") {
    const auto formats = AutocastOf(Resolve(Zoo("resnet20"), {1, 32, 32, 3}));
    for (const auto& [layer, format] : formats) {
      CAPTURE(layer);
      CHECK(format == "bf16");
    }
  }

  TEST_CASE("autocast: fp32 lasts until a product, and where others read it too") {
    Network network = Resolve(Zoo("lenet"), {1, 28, 28, 1});
    // A kind in fp32 in place of the first ReLU (a copy of its row): relu1 pool1 conv2.
    layers::LayerKind wide = *network.nodes[1].kind;
    wide.autocast_fp32 = true, wide.rounds_output = true;
    REQUIRE(network.nodes[1].config.name == "relu1");
    network.nodes[1].kind = &wide;
    auto formats = AutocastOf(network);
    CHECK(formats["conv1"] == "bf16");
    CHECK(formats["relu1"] == "bf16");  // only pool1 reads it, and of that only conv2
    CHECK(formats["pool1"] == "bf16");
    layers::LayerKind pool = *network.nodes[2].kind;
    pool.rounds_output = true;
    network.nodes[2].kind = &pool;
    formats = AutocastOf(network);
    CHECK(formats["relu1"] == "fp32");
    CHECK(formats["pool1"] == "bf16");
    CHECK(formats["conv2"] == "bf16");
    CHECK(formats["fc3"] == "bf16");
  }

  TEST_CASE("autocast: every kind of layer as torch answers for an fp16 and an fp32 input") {
    std::set<std::string> without = {"shortcut", "scale", "external"};  // torch has none of them
    for (const ada::testing::GoldenRow& row :
         ada::testing::ReadGolden("autocast/autocast.csv").rows) {
      const bool bilinear = row.at("kind") == "bilinear";
      const layers::LayerKind* kind = layers::FindLayerKind(bilinear ? "upsample" : row.at("kind"));
      without.insert(row.at("kind"));
      if (kind == nullptr) continue;
      CAPTURE(kind->name);
      const bool product = row.at("of_fp32") == "fp16";
      CHECK((kind->has_weight || kind->autocast_low) == product);
      CHECK((row.at("of_fp16") == "fp32") == (!product && kind->autocast_fp32));
      CHECK((row.at("cpu_of_fp32") == "bf16") == product);
      CHECK((row.at("cpu_of_bf16") == "fp32") == kind->autocast_cpu_fp32);
    }
    for (const layers::LayerKind& kind : layers::LayerKinds()) CHECK(without.count(kind.name) == 1);
  }

  TEST_CASE("autocast: what follows an upsampled value is fp32, until a product") {
    config::LayerConfig up = Layer("up", "upsample");
    up.scale = 2;
    const Network network =
        Resolve(Model({Conv("conv", 4), up, Layer("relu", "relu"), Layer("bn", "batch_norm"),
                       Window("pool", "avg_pool", 2, 2), Linear("fc", 10)}),
                {1, 8, 8, 3});
    auto formats = AutocastOf(network);
    CHECK(formats["conv"] == "bf16");
    CHECK(formats["bn"] == "fp32");
    CHECK(formats["pool"] == "bf16");  // fc alone reads it
    CHECK(formats["fc"] == "bf16");
  }

  TEST_CASE("autocast of a transformer: the residual stream stays fp32, norms differ on a CPU") {
    config::ModelConfig model = Zoo("gpt2");
    model.classes = 64;
    model.transformer = config::TransformerDefaults("gpt2");
    const Network network = Resolve(model, {1, 16, 1, 1}, Task::kLanguage);
    auto formats = AutocastOf(network);
    for (const char* layer :
         {"transformer.wte", "transformer.wpe", "transformer.h.0.add_1", "transformer.h.3.add_2"})
      CHECK_MESSAGE(formats[layer] == "fp32", layer);
    for (const char* layer : {"transformer.h.0.attn.c_attn", "transformer.h.0.attn",
                              "transformer.h.0.mlp.gelu", "lm_head"})
      CHECK_MESSAGE(formats[layer] == "bf16", layer);
    CHECK(formats["transformer.h.0.ln_1"] == "bf16");  // fp32 that c_attn alone reads
    const Network alone = Resolve(Model({Linear("fc", 8), Layer("norm", "layer_norm"),
                                         Layer("act", "sigmoid"), Linear("out", 10)}),
                                  {1, 1, 1, 4});
    CHECK(AutocastFormats(alone, kBf16)[2].activations == kFp32);
    CHECK(AutocastFormats(alone, kBf16, true)[2].activations == kBf16);
  }

  TEST_CASE("autocast in a configuration: layers may still be changed") {
    config::PrecisionConfig precision;
    precision.preset = config::PrecisionPreset::kAutocast, precision.format = kFp16;
    config::LayerPrecisionConfig head;
    head.match = "fc*", head.format = kFp32;
    precision.layers = {head};
    const Network network = Resolve(Zoo("lenet"), {1, 28, 28, 1});
    const NetworkStorage storage = ResolveStorage(network, ResolvePrecision(precision, false));
    CHECK(storage.values[0].format == kFp16);
    for (std::size_t i = 0; i < network.nodes.size(); ++i) {
      const std::string& name = network.nodes[i].config.name;
      CAPTURE(name);
      const bool is_head = name.starts_with("fc");
      if (network.nodes[i].kind->rounds_output)
        CHECK(storage.values[i + 1].format == (is_head ? kFp32 : kFp16));
      CHECK(storage.weight_gradients[i].format == kFp32);
    }
  }

  // torch's gradient of an fp32 value is fp32; what a product hands back has gone through a cast.
  TEST_CASE("autocast: which gradients are rounded, of an fp32 value that is stored rounded") {
    config::PrecisionConfig precision;
    precision.preset = config::PrecisionPreset::kAutocastCpu, precision.format = kFp16;
    const auto storage_of = [&](const config::ModelConfig& model) {
      const Network network = Resolve(model, {1, 8, 8, 3});
      std::map<std::string, std::pair<NumberFormat, NumberFormat>> formats;
      const NetworkStorage storage = ResolveStorage(network, ResolvePrecision(precision, false));
      for (std::size_t i = 0; i < network.nodes.size(); ++i)
        formats[network.nodes[i].config.name] = {storage.values[i + 1].format,
                                                 storage.arriving[i + 1].format};
      return formats;
    };
    const auto conv = Conv("conv", 4), norm = Layer("norm", "l2_normalize");
    // The overlapping pool's dx is fp32 and arrives so at the norm; the pool's dy is fc's.
    auto pooled = storage_of(Model(
        {conv, norm, Layer("relu", "relu"), Window("pool", "max_pool", 3, 1), Linear("fc", 10)}));
    CHECK(pooled["norm"] == std::pair(kFp16, kFp32));
    CHECK(pooled["relu"] == std::pair(kFp16, kFp32));
    CHECK(pooled["pool"] == std::pair(kFp16, kFp16));
    CHECK(pooled["conv"] == std::pair(kFp16, kFp16));
    auto alone = storage_of(Model({conv, norm, Linear("fc", 10)}));
    CHECK(alone["norm"] == std::pair(kFp16, kFp16));
    // Two products hand back fp16, the sum of which is fp32.
    config::LayerConfig left = Conv("left", 4), right = Conv("right", 4), add = Layer("add", "add");
    left.inputs = right.inputs = {"norm"}, add.inputs = {"left", "right"};
    auto summed = storage_of(Model({conv, norm, left, right, add, Linear("fc", 10)}));
    CHECK(summed["norm"] == std::pair(kFp16, kFp32));
    CHECK(summed["left"] == std::pair(kFp16, kFp16));
    // Without the norm all is fp16.
    auto low = storage_of(Model({conv, Window("pool", "max_pool", 3, 1), Linear("fc", 10)}));
    CHECK(low["conv"] == std::pair(kFp16, kFp16));
    // An entry of precision.layers decides for whoever writes the gradient.
    config::LayerPrecisionConfig entry;
    entry.match = "norm", entry.gradients = kBf16;
    precision.layers = {entry};
    CHECK(storage_of(Model({conv, norm, Linear("fc", 10)}))["norm"] == std::pair(kFp16, kBf16));
  }

  TEST_CASE("the last batch norms of residual blocks, shortcuts apart") {
    struct Row {
      const char* zoo;
      const char* last;
      std::size_t blocks;
    };
    for (const Row& row : {Row{"resnet20", ".bn2", 9}, Row{"resnet18", ".bn2", 8},
                           Row{"resnet50", ".bn3", 16}, Row{"vgg11", "", 0}}) {
      CAPTURE(row.zoo);
      const std::vector<std::string> names = LastNorms(Resolve(Zoo(row.zoo), {1, 64, 64, 3}));
      CHECK(names.size() == row.blocks);
      for (const std::string& name : names) CHECK(name.ends_with(row.last));
    }
    config::ModelConfig projected = Zoo("resnet20");
    projected.shortcut = "B";
    for (const std::string& name : LastNorms(Resolve(projected, {1, 32, 32, 3})))
      CHECK(name.ends_with(".bn2"));
  }
}

}  // namespace ada::graph::test
