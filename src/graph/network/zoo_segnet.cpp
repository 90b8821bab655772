// SegNet: Badrinarayanan, Kendall and Cipolla, "SegNet: a deep convolutional encoder-decoder
// architecture for image segmentation" (2017). The encoder's poolings keep the positions of their
// maxima, the decoder puts values back there. segnet_basic as ChainerCV has it.
#include <array>
#include <string>

#include "graph/network/zoo_stack.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

// whole: the output's size is that of the pool's complete windows, which is one row or column more
// than the pool's input if that is odd.
void AddUnpool(ZooStack& net, int stage, bool whole) {
  const std::string number = std::to_string(stage);
  LayerConfig& layer = net.Add("unpool" + number, "max_unpool");
  layer.pool = "pool" + number;
  layer.whole = whole;
}

// A 7x7 convolution and its batch norm, as the original starts them.
void AddBasicConv(ZooStack& net, const std::string& name, int channels) {
  net.PlainConv(name, channels, 7, 1);
  LayerConfig& norm = net.Add(name + "_bn", "batch_norm");
  norm.eps = 2e-5;
  norm.initial_beta = 0.001;
}

// How many convolutions of which channels a stage of VGG-16 has.
struct VggStage {
  int channels, convolutions;
};
constexpr std::array<VggStage, 5> kVgg16 = {{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}}};

void AddConvNormRelu3(ZooStack& net, int channels, const std::string& index) {
  net.PlainConv("conv" + index, channels, 3, 1);
  net.Add("bn" + index, "batch_norm");
  net.Add("relu" + index, "relu");
}

}  // namespace

std::vector<LayerConfig> SegNetBasic(const ModelConfig& model) {
  constexpr int kStages = 4;
  const int channels = Widened(64, model.width);
  ZooStack net(model);
  net.Add("lrn", "lrn").size = {5, 5};
  for (int stage = 1; stage <= kStages; ++stage) {
    const std::string number = std::to_string(stage);
    AddBasicConv(net, "conv" + number, channels);
    net.Add("relu" + number, "relu");
    net.CeilPool("pool" + number);
  }
  for (int stage = kStages; stage >= 1; --stage) {
    AddUnpool(net, stage, /*whole=*/stage > 1);
    AddBasicConv(net, "conv_decode" + std::to_string(stage), channels);
  }
  net.Conv("conv_classifier", model.classes, 1, 1, 0);
  if (model.cast) net.Add(kCast, "scale");
  return net.Take();
}

// The decoder mirrors VGG-16: its last convolution of a stage has the channels of the stage before,
// and the very last one gives the logits.
std::vector<LayerConfig> SegNet(const ModelConfig& model) {
  ZooStack net(model);
  for (int stage = 1; stage <= 5; ++stage) {
    const VggStage& vgg = kVgg16[static_cast<std::size_t>(stage - 1)];
    const std::string number = std::to_string(stage);
    for (int i = 1; i <= vgg.convolutions; ++i)
      AddConvNormRelu3(net, Widened(vgg.channels, model.width), number + "_" + std::to_string(i));
    net.CeilPool("pool" + number);
  }
  for (int stage = 5; stage >= 1; --stage) {
    const VggStage& vgg = kVgg16[static_cast<std::size_t>(stage - 1)];
    const int before = stage > 1 ? kVgg16[static_cast<std::size_t>(stage - 2)].channels : 0;
    AddUnpool(net, stage, /*whole=*/false);
    for (int i = vgg.convolutions; i >= 1; --i) {
      const std::string index = std::to_string(stage) + "_" + std::to_string(i) + "_D";
      if (stage == 1 && i == 1) {
        net.Conv("conv" + index, model.classes, 3, 1, 1);
      } else {
        AddConvNormRelu3(net, Widened(i > 1 ? vgg.channels : before, model.width), index);
      }
    }
  }
  if (model.cast) net.Add(kCast, "scale");
  return net.Take();
}

}  // namespace ada::graph
