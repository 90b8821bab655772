// The zoo: parameter counts known from the literature, layer names of configs/networks.md, shapes
// on the way.
#include "graph/network/zoo.h"

#include <doctest/doctest.h>

#include <map>

#include "error.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

struct Size {
  std::string zoo, shortcut;
  Shape input;
  std::int64_t parameters;
  double mflop;  // 2 x multiply-adds of convolutions and linear layers
};

// resnet, shortcut A: github.com/akamaster/pytorch_resnet_cifar10 (its own
// counts). B adds 16*32 + 32*64 weights and 2*(32+64) of batch norm. VGG without convolution
// biases: torchvision's features of vgg11_bn, vgg13_bn, vgg16_bn, vgg19_bn (9,225,984,
// 9,410,880, 14,723,136, 20,035,392 with biases) less their 2,752, 2,944, 4,224, 5,504 biases, plus
// 5,130 of fc. LeNet-5 with full connections: 61,706.
const std::vector<Size> kSizes = {
    {"mlp", "A", {1, 28, 28, 1}, 784 * 512 + 512 + 512 * 512 + 512 + 5130, 1.337344},
    {"lenet", "A", {1, 28, 28, 1}, 61706, 0.83304},
    {"resnet20", "A", {1, 32, 32, 3}, 269722, 81.102},
    {"resnet20", "B", {1, 32, 32, 3}, 269722 + 512 + 2048 + 192, 81.627},
    {"resnet32", "A", {1, 32, 32, 3}, 464154, 137.72},
    {"resnet44", "A", {1, 32, 32, 3}, 658586, 194.35},
    {"resnet56", "A", {1, 32, 32, 3}, 853018, 250.97},
    {"resnet110", "A", {1, 32, 32, 3}, 1727962, 505.79},
    {"vgg11", "A", {1, 32, 32, 3}, 9225984 - 2752 + 5130, 305.54},
    {"vgg13", "A", {1, 32, 32, 3}, 9410880 - 2944 + 5130, 456.53},
    {"vgg16", "A", {1, 32, 32, 3}, 14723136 - 4224 + 5130, 626.40},
    {"vgg19", "A", {1, 32, 32, 3}, 20035392 - 5504 + 5130, 796.27},
    // He et al. 2016: 1.7 million in both. Two batch norms of 16, 32 or 64 channels, a block less.
    {"preresnet110", "A", {1, 32, 32, 3}, 1730522, 506.30},
    {"preresnet164", "A", {1, 32, 32, 3}, 1703258, 495.29},
    // Zagoruyko and Komodakis, table 9: 36.5 and 11.0 million; as their PyTorch successors count.
    {"wide_resnet28_10", "A", {1, 32, 32, 3}, 36479194, 10486.7},
    {"wide_resnet16_8", "A", {1, 32, 32, 3}, 10961370, 3096.3},
};

std::vector<std::string> NamesFrom(const std::vector<config::LayerConfig>& layers,
                                   const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& layer : layers) {
    if (layer.name.starts_with(prefix)) names.push_back(layer.name.substr(prefix.size()));
  }
  return names;
}

std::string MessageOf(const config::ModelConfig& model) {
  try {
    ExpandZoo(model);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

using Names = std::vector<std::string>;

TEST_SUITE("cpu") {
  TEST_CASE("parameters and operations") {
    for (const Size& size : kSizes) {
      CAPTURE(size.zoo);
      config::ModelConfig model = Zoo(size.zoo);
      model.shortcut = size.shortcut;
      const Network network = Resolve(model, size.input);
      CHECK(network.trained_numel() == size.parameters);
      CHECK(network.mflop() == doctest::Approx(size.mflop).epsilon(1e-4));
    }
  }

  TEST_CASE("transformers: parameters as their programs count them") {
    struct Known {
      std::string zoo;
      int classes;
      Shape input;
      Task task;
      std::int64_t parameters;
    };
    // GPT-2: transformers' count. stories15M: llama2.c's, its head tied. ViT-B/16: torchvision's.
    const std::vector<Known> all = {
        {"gpt2_124m", 50257, {1, 1024, 1, 1}, Task::kLanguage, 124439808},
        {"llama_tiny", 32000, {1, 256, 1, 1}, Task::kLanguage, 15191712},
        {"vit_b_16", 1000, {1, 224, 224, 3}, Task::kClassification, 86567656},
        // 4 blocks of width 128 on bytes: the recipe of gpt2_jargon.yaml.
        {"gpt2", 256, {1, 128, 1, 1}, Task::kLanguage, 842496}};
    for (const Known& known : all) {
      CAPTURE(known.zoo);
      config::ModelConfig model = Zoo(known.zoo);
      model.classes = known.classes;
      model.transformer = config::TransformerDefaults(known.zoo);
      CHECK(Resolve(model, known.input, known.task).trained_numel() == known.parameters);
    }
  }

  TEST_CASE("transformers: layers, sizes and what a tied head shares") {
    config::ModelConfig model = Zoo("gpt2");
    model.classes = 64;
    model.transformer = config::TransformerDefaults("gpt2");
    model.transformer.layers = 2, model.transformer.heads = 6, model.transformer.kv_heads = 2;
    model.transformer.head_dim = 4, model.transformer.width = 16;
    model.dropout = 0.1;
    const auto layers = ExpandZoo(model);
    CHECK(NamesFrom(layers, "transformer.h.1.") ==
          Names{"ln_1", "attn.c_attn", "attn", "attn.c_proj", "attn.resid_dropout", "add_1", "ln_2",
                "mlp.c_fc", "mlp.gelu", "mlp.c_proj", "mlp.dropout", "add_2"});
    const Network network = Resolve(model, {1, 12, 1, 1}, Task::kLanguage);
    for (const Node& node : network.nodes) {
      if (node.config.name.ends_with("c_attn")) CHECK(node.output.c == 40);  // 24 + 2 * 8
      if (node.config.name.ends_with(".attn")) CHECK(node.output.c == 24);
      if (node.config.name == "transformer.wpe") CHECK(node.parameters[0].dims[0] == 12);
    }
    CHECK(layers.back().weight_of == "transformer.wte");
    CHECK(network.nodes.back().trained_numel() == 0);
    model.transformer.tied = false, model.transformer.bias = false;
    const Network untied = Resolve(model, {1, 12, 1, 1}, Task::kLanguage);
    CHECK(untied.nodes.back().trained_numel() == 64 * 16);
    for (const Node& node : untied.nodes) CHECK(node.parameters.size() <= 1);
    CHECK_THROWS_AS(Resolve(model, {1, 8, 8, 3}, Task::kClassification), ConfigError);
  }

  TEST_CASE(
      "depth: resnetN has N layers with weights on its longest path, vggN without its lost "
      "two linear layers") {
    const std::map<std::string, int> depths = {
        {"resnet20", 20}, {"resnet32", 32}, {"resnet44", 44}, {"resnet56", 56}, {"resnet110", 110},
        {"vgg11", 9},     {"vgg13", 11},    {"vgg16", 14},    {"vgg19", 17}};
    for (const auto& [zoo, depth] : depths) {
      CAPTURE(zoo);
      int count = 0;
      for (const auto& layer : ExpandZoo(Zoo(zoo))) {
        count += layer.kind == "conv2d" || layer.kind == "linear";
      }
      CHECK(count == depth);
    }
  }

  TEST_CASE("resnet's names, inputs and shapes") {
    config::ModelConfig model = Zoo("resnet20");
    const auto a = ExpandZoo(model);
    model.shortcut = "B";
    const auto b = ExpandZoo(model);
    CHECK(NamesFrom(a, "stage1.block1.") ==
          Names{"conv1", "bn1", "relu1", "conv2", "bn2", "add", "relu2"});
    CHECK(NamesFrom(a, "stage2.block1.") ==
          Names{"conv1", "bn1", "relu1", "conv2", "bn2", "shortcut", "add", "relu2"});
    CHECK(NamesFrom(b, "stage3.block1.") == Names{"conv1", "bn1", "relu1", "conv2", "bn2",
                                                  "shortcut.conv", "shortcut.bn", "add", "relu2"});
    CHECK(a[0].name == "conv1");
    CHECK(a[a.size() - 2].name == "pool");
    CHECK(a.back().name == "fc");
    const Network network = Resolve(model, {1, 32, 32, 3});
    for (const Node& node : network.nodes) {
      const std::string& name = node.config.name;
      if (node.config.kind == "conv2d") CHECK_FALSE(node.config.bias);
      if (name == "conv1") CHECK(node.output == Shape{1, 32, 32, 16});
      if (name == "stage1.block3.relu2") CHECK(node.output == Shape{1, 32, 32, 16});
      if (name == "stage2.block1.conv1") CHECK(node.output == Shape{1, 16, 16, 32});
      if (name == "stage2.block1.shortcut.conv") {
        CHECK(node.config.kernel == std::array<int, 2>{1, 1});
        CHECK(node.config.stride == std::array<int, 2>{2, 2});
        CHECK(node.config.padding == std::array<int, 2>{0, 0});
        CHECK(network.nodes[node.inputs[0] - 1].config.name == "stage1.block3.relu2");
      }
      if (name == "stage3.block3.relu2") CHECK(node.output == Shape{1, 8, 8, 64});
      if (name == "pool") CHECK(node.output == Shape{1, 1, 1, 64});
    }
  }

  TEST_CASE("resnet as its authors' program has it: a projection in front of every stage") {
    config::ModelConfig model = Zoo("resnet20");
    model.shortcut = "reference";
    const Network network = Resolve(model, {1, 32, 32, 3});
    std::map<std::string, int> strides;
    for (const Node& node : network.nodes)
      if (node.config.kind == "conv2d") strides[node.config.name] = node.config.stride[0];
    CHECK(strides.size() == 19 + 3);
    for (const std::string stage : {"1", "2", "3"}) {
      const std::string block = "stage" + stage + ".block1.";
      CHECK(strides.at(block + "conv1") == 1);
      CHECK(strides.at(block + "conv2") == (stage == "1" ? 1 : 2));
      CHECK(strides.at(block + "shortcut.conv") == (stage == "1" ? 1 : 2));
    }
    // Beside B: a projection of 16 to 16 channels, and its batch norm.
    CHECK(network.trained_numel() == 269722 + 512 + 2048 + 192 + 256 + 32);
  }

  TEST_CASE("blocks without activations between them") {
    const auto layers = ExpandZoo(Zoo("preresnet164"));
    CHECK(NamesFrom(layers, "stage1.block1.") == Names{"bn1", "relu1", "conv1", "bn2", "relu2",
                                                       "conv2", "bn3", "relu3", "conv3", "shortcut",
                                                       "add"});
    CHECK(NamesFrom(ExpandZoo(Zoo("preresnet20")), "stage1.block1.") ==
          Names{"bn1", "relu1", "conv1", "bn2", "relu2", "conv2", "add"});
    for (const auto& layer : layers) {
      if (layer.name == "stage2.block1.shortcut")
        CHECK(layer.inputs == Names{"stage2.block1.relu1"});
      if (layer.name == "stage2.block1.conv2") CHECK(layer.stride == std::array<int, 2>{2, 2});
      if (layer.name == "stage2.block2.add")
        CHECK(layer.inputs == Names{"stage2.block2.conv3", "stage2.block1.add"});
    }
    config::ModelConfig wide = Zoo("wide_resnet16_8");
    wide.dropout = 0.3;
    CHECK(NamesFrom(ExpandZoo(wide), "stage2.block2.") ==
          Names{"bn1", "relu1", "conv1", "bn2", "relu2", "dropout", "conv2", "add"});
  }

  TEST_CASE("names of the others") {
    config::ModelConfig mlp = Zoo("mlp");
    mlp.hidden = {7, 5};
    CHECK(NamesFrom(ExpandZoo(mlp), "") == Names{"fc1", "relu1", "fc2", "relu2", "fc3"});
    mlp.hidden = {};
    CHECK(NamesFrom(ExpandZoo(mlp), "") == Names{"fc1"});
    CHECK(NamesFrom(ExpandZoo(Zoo("lenet")), "") == Names{"conv1", "relu1", "pool1", "conv2",
                                                          "relu2", "pool2", "fc1", "relu3", "fc2",
                                                          "relu4", "fc3"});
    config::ModelConfig vgg = Zoo("vgg16");
    CHECK(NamesFrom(ExpandZoo(vgg), "stage3.") ==
          Names{"conv1", "bn1", "relu1", "conv2", "bn2", "relu2", "conv3", "bn3", "relu3", "pool"});
    CHECK(ExpandZoo(vgg)[ExpandZoo(vgg).size() - 2].name == "stage5.pool");
    config::ModelConfig plain = vgg;
    plain.plain = true;
    CHECK(NamesFrom(ExpandZoo(plain), "stage1.") ==
          Names{"conv1", "relu1", "conv2", "relu2", "pool"});
    CHECK(Resolve(plain, {1, 32, 32, 3}).trained_numel() == 14714688 + 5130);
    vgg.dropout = 0.5;
    CHECK(ExpandZoo(vgg)[ExpandZoo(vgg).size() - 2].kind == "dropout");
    CHECK(ExpandZoo(vgg).back().name == "fc");
  }

  TEST_CASE("unknown names say what is near and where") {
    config::ModelConfig model = Zoo("resnet21");
    model.where = {"net.yaml", 3, 8};
    CHECK(MessageOf(model) ==
          "net.yaml:3:8: model.zoo: unknown model 'resnet21'; did you mean 'resnet20'?; `ada-train "
          "models` lists them");
    model.zoo = "resnet20";
    model.shortcut = "C";
    CHECK(MessageOf(model) ==
          "net.yaml:3:8: model.shortcut: expected A, B or reference, found 'C'");
  }

  TEST_CASE("the list has one line per model") {
    const std::vector<std::string> lines = ListModels();
    REQUIRE(lines.size() == ZooNames().size());
    CHECK(lines[2] ==
          "resnet20             269722 parameters     81.1 MFLOP at 32x32x3   keys: shortcut");
    for (std::size_t i = 0; i < lines.size(); ++i) CHECK(lines[i].starts_with(ZooNames()[i] + " "));
  }
}

}  // namespace
}  // namespace ada::graph::test
