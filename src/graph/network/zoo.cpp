// The table of all models.
#include "graph/network/zoo.h"

#include "error.h"
#include "graph/network/zoo_stack.h"
#include "io/text.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

const char* TaskText(Task task) {
  switch (task) {
    case Task::kClassification:
      return "classification";
    case Task::kSegmentation:
      return "segmentation";
    case Task::kDetection:
      return "detection";
    case Task::kLanguage:
      return "language";
  }
  return "";
}

// Templates turn the arguments that a row fixes into functions, so that all rows have one type.
template <int depth>
std::vector<LayerConfig> ResNetOf(const ModelConfig& model) {
  return CifarResNet(model, depth);
}
template <int depth>
std::vector<LayerConfig> PreResNetOf(const ModelConfig& model) {
  return CifarPreResNet(model, depth);
}
template <int depth, int factor>
std::vector<LayerConfig> WideResNetOf(const ModelConfig& model) {
  return CifarWideResNet(model, depth, factor);
}
template <int... convolutions>
std::vector<LayerConfig> VggOf(const ModelConfig& model) {
  return Vgg(model, {convolutions...});
}

// The sizes of transformers, which have too many keys for a line.
constexpr char kSizes[] = "layers, heads, width ...";

const ZooModel* FindModel(const std::string& name) {
  for (const ZooModel& entry : ZooModels())
    if (entry.name == name) return &entry;
  return nullptr;
}

}  // namespace

const std::vector<ZooModel>& ZooModels() {
  static const Shape kMnist{1, 28, 28, 1}, kCifar{1, 32, 32, 3}, kImageNet{1, 224, 224, 3},
      kCamVid{1, 360, 480, 3};
  static const std::vector<ZooModel> entries = {
      {"mlp", kMnist, "hidden", Mlp},
      {"lenet", kMnist, "", LeNet},
      {"resnet20", kCifar, "shortcut", ResNetOf<20>},
      {"resnet32", kCifar, "shortcut", ResNetOf<32>},
      {"resnet44", kCifar, "shortcut", ResNetOf<44>},
      {"resnet56", kCifar, "shortcut", ResNetOf<56>},
      {"resnet110", kCifar, "shortcut", ResNetOf<110>},
      {"preresnet20", kCifar, "", PreResNetOf<20>},
      {"preresnet32", kCifar, "", PreResNetOf<32>},
      {"preresnet44", kCifar, "", PreResNetOf<44>},
      {"preresnet56", kCifar, "", PreResNetOf<56>},
      {"preresnet110", kCifar, "", PreResNetOf<110>},
      {"preresnet164", kCifar, "", PreResNetOf<164>},
      {"wide_resnet28_10", kCifar, "dropout", WideResNetOf<28, 10>},
      {"wide_resnet16_8", kCifar, "dropout", WideResNetOf<16, 8>},
      {"vgg11", kCifar, "dropout, plain", VggOf<1, 1, 2, 2, 2>},
      {"vgg13", kCifar, "dropout, plain", VggOf<2, 2, 2, 2, 2>},
      {"vgg16", kCifar, "dropout, plain", VggOf<2, 2, 3, 3, 3>},
      {"vgg19", kCifar, "dropout, plain", VggOf<2, 2, 4, 4, 4>},
      {"resnet18", kImageNet, "", ResNet18, 1000},
      {"resnet34", kImageNet, "", ResNet34, 1000},
      {"resnet50", kImageNet, "", ResNet50, 1000},
      {"resnet101", kImageNet, "", ResNet101, 1000},
      {"resnet152", kImageNet, "", ResNet152, 1000},
      {"wide_resnet50_2", kImageNet, "", WideResNet50, 1000},
      {"mobilenet_v2", kImageNet, "dropout", MobileNetV2, 1000},
      {"densenet121", kImageNet, "", DenseNet121, 1000},
      {"segnet_basic", kCamVid, "width", SegNetBasic, 11, Task::kSegmentation},
      {"segnet", kCamVid, "width", SegNet, 11, Task::kSegmentation},
      {"ssd300", {1, 300, 300, 3}, "width, batch_norm", Ssd300, 20, Task::kDetection},
      {"ssd512", {1, 512, 512, 3}, "width, batch_norm", Ssd512, 20, Task::kDetection},
      {"gpt2", {1, 128, 1, 1}, kSizes, Gpt2, 256, Task::kLanguage},
      {"llama", {1, 128, 1, 1}, kSizes, Llama, 256, Task::kLanguage},
      {"vit", kCifar, kSizes, Vit},
      {"gpt2_124m", {1, 1024, 1, 1}, kSizes, Gpt2, 50257, Task::kLanguage},
      {"llama_tiny", {1, 256, 1, 1}, kSizes, Llama, 32000, Task::kLanguage},
      {"vit_b_16", kImageNet, kSizes, Vit, 1000},
  };
  return entries;
}

const std::vector<std::string>& ZooNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const ZooModel& entry : ZooModels()) result.push_back(entry.name);
    return result;
  }();
  return names;
}

std::vector<LayerConfig> ExpandZoo(const ModelConfig& model) {
  if (const ZooModel* entry = FindModel(model.zoo)) return entry->expand(model);
  throw ConfigError(PlacePrefix(model.where) + "model.zoo: unknown model '" + model.zoo + "'" +
                    Nearest(model.zoo, ZooNames()) + "; `ada-train models` lists them");
}

// A cast (model.cast) follows each output of a detection network and is named "cast." and that
// output's name.
std::vector<std::string> OutputNames(const ModelConfig& model,
                                     const std::vector<LayerConfig>& layers) {
  if (!model.outputs.empty()) return model.outputs;
  const ZooModel* entry = FindModel(model.zoo);
  if (entry != nullptr && entry->task == Task::kDetection) {
    const std::string cast = model.cast ? std::string(kCast) + "." : "";
    return {cast + kSsdLocations, cast + kSsdScores};
  }
  return layers.empty() ? std::vector<std::string>{} : std::vector{layers.back().name};
}

void CheckZooTask(const ModelConfig& model, Task task) {
  const ZooModel* entry = FindModel(model.zoo);
  if (entry == nullptr || entry->task == task) return;
  throw ConfigError(PlacePrefix(model.where) + "model.zoo: " + model.zoo +
                    " is a network for `task: " + TaskText(entry->task) +
                    "`, found `task: " + TaskText(task) + "`");
}

}  // namespace ada::graph
