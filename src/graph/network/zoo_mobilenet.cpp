// Sandler et al., "MobileNetV2: inverted residuals and linear bottlenecks" (2018), table 2.
#include <string>

#include "graph/network/zoo_stack.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

// A row of the table: how often the block is repeated; only the first has the stride.
struct InvertedRow {
  int expansion, channels, blocks, stride;
};
constexpr InvertedRow kRows[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

// Convolution, batch norm and relu6, as `name`0, 1 and 2. groups: as many as channels, or 1.
void AddConvNormRelu(ZooStack& net, const std::string& name, int channels, int kernel, int stride,
                     int groups) {
  net.PlainConv(name + "0", channels, kernel, stride).groups = groups;
  net.Add(name + "1", "batch_norm");
  net.Add(name + "2", "relu6");
}

// Expands by `expansion`, filters each channel separately (as many groups as channels), and
// projects without an activation. The addition exists only if input and output have the same shape.
void AddInvertedResidual(ZooStack& net, const std::string& block, int in, const InvertedRow& row,
                         int stride) {
  const std::string input = net.last();
  const int wide = in * row.expansion;
  int part = 0;
  const auto next = [&] { return block + "conv." + std::to_string(part++); };
  if (row.expansion > 1) AddConvNormRelu(net, next() + ".", wide, 1, 1, 1);
  AddConvNormRelu(net, next() + ".", wide, 3, stride, wide);
  net.PlainConv(next(), row.channels, 1, 1);
  net.Add(next(), "batch_norm");
  if (stride > 1 || in != row.channels) return;
  const std::string path = net.last();
  net.Add(block + "add", "add").inputs = {input, path};
}

}  // namespace

std::vector<LayerConfig> MobileNetV2(const ModelConfig& model) {
  ZooStack net(model);
  int channels = 32, index = 1;
  AddConvNormRelu(net, "features.0.", channels, 3, 2, 1);
  for (const InvertedRow& row : kRows) {
    for (int i = 0; i < row.blocks; ++i) {
      AddInvertedResidual(net, "features." + std::to_string(index++) + ".", channels, row,
                          i == 0 ? row.stride : 1);
      channels = row.channels;
    }
  }
  AddConvNormRelu(net, "features." + std::to_string(index) + ".", 1280, 1, 1, 1);
  net.Add("pool", "global_avg_pool");
  if (model.dropout > 0) net.Add("classifier.0", "dropout").rate = model.dropout;
  net.Linear("classifier.1", model.classes);
  return net.Take();
}

}  // namespace ada::graph
