// SegNet: Badrinarayanan, Kendall and Cipolla, "SegNet: a deep convolutional encoder-decoder
// architecture for image segmentation" (2017). The encoder's poolings keep the positions of their
// maxima, the decoder puts values back there. segnet_basic as ChainerCV has it. SSD: Liu et al.,
// "SSD: single shot multibox detector" (2016), on VGG-16 with conv6 and conv7 in place of its
// linear layers; layers and shapes as ChainerCV has them, with its names.
#include <array>
#include <string>
#include <utility>
#include <vector>

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

namespace {

struct SsdConv {
  int channels, kernel, stride, padding, dilation = 1;
};

// Builds one SSD: VGG-16, extra stages, and two heads for each source. Sources go from large maps
// with small boxes to small maps with large ones; conv4_3 is the first, normalized because its
// values' scale differs from the others' (section 3.1).
class SsdStack {
 public:
  explicit SsdStack(const ModelConfig& model) : model_(model), net_(model) {}

  // extras: the second convolution of each extra stage; the first is 1x1 with half its channels.
  // boxes: of a pixel, by what the heads read.
  std::vector<LayerConfig> Build(const std::vector<SsdConv>& extras,
                                 const std::vector<int>& boxes) {
    AddVgg();
    int stage = 8;
    for (const SsdConv& extra : extras) AddExtra(stage++, extra);
    AddHeads(boxes);
    return net_.Take();
  }

 private:
  // A convolution, its batch norm where the model has them, and relu.
  void AddConv(const std::string& index, const SsdConv& c) {
    LayerConfig& conv =
        net_.Conv("conv" + index, Widened(c.channels, model_.width), c.kernel, c.stride, c.padding);
    conv.dilation = {c.dilation, c.dilation};
    conv.bias = !model_.batch_norm;
    if (model_.batch_norm) net_.Add("bn" + index, "batch_norm");
    net_.Add("relu" + index, "relu");
  }
  void AddStage(int stage, int channels, int convolutions) {
    for (int i = 1; i <= convolutions; ++i)
      AddConv(std::to_string(stage) + "_" + std::to_string(i), {channels, 3, 1, 1});
  }
  void AddPool(int stage) { net_.CeilPool("pool" + std::to_string(stage)); }

  void AddVgg() {
    constexpr std::pair<int, int> kStages[] = {{64, 2}, {128, 2}, {256, 3}, {512, 3}};
    int stage = 1;
    for (const auto& [channels, convolutions] : kStages) {
      AddStage(stage, channels, convolutions);
      if (stage < 4) AddPool(stage++);
    }
    const std::string features = net_.last();
    net_.Add("norm4", "l2_normalize").value = 20;
    sources_.push_back(net_.last());
    AddPool(4);
    net_.InputsOfLast() = {features};
    AddStage(5, 512, 3);
    LayerConfig& pool = net_.Add("pool5", "max_pool");
    pool.kernel = {3, 3}, pool.stride = pool.padding = {1, 1};
    AddConv("6", {.channels = 1024, .kernel = 3, .stride = 1, .padding = 6, .dilation = 6});
    AddConv("7", {1024, 1, 1, 0});
    sources_.push_back(net_.last());
  }

  void AddExtra(int stage, const SsdConv& extra) {
    const std::string number = std::to_string(stage) + "_";
    AddConv(number + "1", {extra.channels / 2, 1, 1, 0});
    AddConv(number + "2", extra);
    sources_.push_back(net_.last());
  }

  // Box b of a pixel has channels [4 b, 4 b + 4) of the locations and as many as there are classes,
  // with the background, of the scores; concat_boxes brings all maps into one list of boxes, in the
  // order of the default boxes (vision/).
  void AddHeads(const std::vector<int>& boxes) {
    const int scores = model_.classes + 1;
    std::vector<std::string> locs, confs;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      locs.push_back("multibox.loc." + std::to_string(i));
      net_.Conv(locs.back(), 4 * boxes[i], 3, 1, 1).inputs = {sources_[i]};
      confs.push_back("multibox.conf." + std::to_string(i));
      net_.Conv(confs.back(), scores * boxes[i], 3, 1, 1).inputs = {sources_[i]};
    }
    net_.Add(kSsdLocations, "concat_boxes").inputs = locs;
    LayerConfig& join = net_.Add(kSsdScores, "concat_boxes");
    join.inputs = confs;
    join.values = scores;
    if (!model_.cast) return;
    for (const char* output : {kSsdLocations, kSsdScores})
      net_.Add(std::string(kCast) + "." + output, "scale").inputs = {output};
  }

  const ModelConfig& model_;
  ZooStack net_;
  std::vector<std::string> sources_;  // the layers that the heads read
};

}  // namespace

std::vector<LayerConfig> Ssd300(const ModelConfig& model) {
  return SsdStack(model).Build({{512, 3, 2, 1}, {256, 3, 2, 1}, {256, 3, 1, 0}, {256, 3, 1, 0}},
                               {4, 6, 6, 6, 4, 4});
}

std::vector<LayerConfig> Ssd512(const ModelConfig& model) {
  return SsdStack(model).Build(
      {{512, 3, 2, 1}, {256, 3, 2, 1}, {256, 3, 2, 1}, {256, 3, 2, 1}, {256, 4, 1, 1}},
      {4, 6, 6, 6, 6, 4, 4});
}

}  // namespace ada::graph
