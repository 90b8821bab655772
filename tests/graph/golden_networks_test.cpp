// The networks of detection and segmentation, layer for layer, against ChainerCV's as recorded
// (tests/golden/networks): kinds, windows, shapes, numbers of parameters, names.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "golden_table.h"
#include "golden_vision.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

using testing::GoldenRow;
using testing::GoldenTable;

// Ours of a recorded type; "": a change of layout alone, which has no layer here.
std::string KindOf(const std::string& type) {
  static const std::map<std::string, std::string> kinds = {{"LocalResponseNormalization", "lrn"},
                                                           {"Convolution2D", "conv2d"},
                                                           {"DilatedConvolution2D", "conv2d"},
                                                           {"BatchNormalization", "batch_norm"},
                                                           {"ReLU", "relu"},
                                                           {"MaxPoolingND", "max_pool"},
                                                           {"Upsampling2D", "max_unpool"},
                                                           {"Normalize", "l2_normalize"},
                                                           {"Concat", "concat_boxes"},
                                                           {"GetItem", ""},
                                                           {"Transpose", ""},
                                                           {"Reshape", ""}};
  return kinds.at(type);
}

std::string ChannelsFirst(const Shape& shape) {
  return std::to_string(shape.c) + "x" + std::to_string(shape.h) + "x" + std::to_string(shape.w);
}

// The numbers of a text, in order.
std::vector<std::int64_t> NumbersIn(const std::string& text) {
  std::vector<std::int64_t> numbers;
  bool inside = false;
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (digit && !inside) numbers.push_back(0);
    if (digit) numbers.back() = 10 * numbers.back() + (c - '0');
    inside = digit;
  }
  return numbers;
}

// "input 3xHxW; outputs ...; parameters N".
const std::string& FactsOf(const GoldenTable& table) {
  for (const std::string& comment : table.comments)
    if (comment.starts_with("input ")) return comment;
  throw std::runtime_error("no line about the input");
}

void CheckWindow(const Node& node, const GoldenRow& row) {
  if (node.config.kind == "batch_norm" || row.at("kernel").empty()) return;
  if (node.config.kind != "conv2d" && node.config.kind != "max_pool") return;
  CHECK(std::to_string(node.config.kernel[0]) == row.at("kernel"));
  CHECK(node.config.kernel[0] == node.config.kernel[1]);
  CHECK(std::to_string(node.config.stride[0]) == row.at("stride"));
  CHECK(std::to_string(node.config.padding[0]) == row.at("pad"));
  if (node.config.kind != "conv2d") return;
  CHECK(std::to_string(node.config.dilation[0]) == row.at("dilation"));
  CHECK((node.config.bias ? "1" : "0") == row.at("bias"));
}

void CheckNode(const Node& node, const GoldenRow& row) {
  CAPTURE(node.config.name);
  CAPTURE(row.at("order"));
  CHECK(node.config.kind == KindOf(row.at("type")));
  const std::string& link = row.at("link");
  const std::string prefix = "extractor.";
  if (!link.empty())
    CHECK(node.config.name == (link.starts_with(prefix) ? link.substr(prefix.size()) : link));
  CheckWindow(node, row);
  if (!row.at("out").empty()) CHECK(ChannelsFirst(node.output) == row.at("out"));
  CHECK(std::to_string(node.trained_numel()) == row.at("params"));
}

void CheckNetwork(const std::string& zoo, const GoldenTable& table) {
  const bool segments = zoo.starts_with("segnet");
  const std::vector<std::int64_t> facts = NumbersIn(FactsOf(table));  // 3 H W, outputs, parameters
  REQUIRE(facts.size() >= 7);
  config::ModelConfig model = Zoo(zoo);
  model.classes = static_cast<int>(segments ? facts[3] : facts[6] - 1);
  const Network network = Resolve(model, {1, facts[1], facts[2], facts[0]},
                                  segments ? Task::kSegmentation : Task::kDetection);
  CHECK(network.trained_numel() == facts.back());
  std::size_t next = 0;
  for (const GoldenRow& row : table.rows) {
    if (KindOf(row.at("type")).empty()) continue;
    REQUIRE(next < network.nodes.size());
    CheckNode(network.nodes[next++], row);
  }
  CHECK(next == network.nodes.size());
  for (std::size_t i = 0; !segments && i < 2; ++i) {
    const Shape& output = network.shape(network.outputs.at(i));
    CHECK(output == Shape{1, 1, facts[3 + 2 * i], facts[4 + 2 * i]});
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("layers, shapes and parameters are those recorded") {
    int networks = 0;
    for (const std::string& folder : testing::VisionFolders("networks")) {
      for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().stem().string();
        if (entry.path().extension() != ".csv" || name.ends_with("_parameters")) continue;
        CAPTURE(entry.path().string());
        CheckNetwork(name, testing::ReadTable(entry.path().string()));
        ++networks;
      }
    }
    CHECK(networks >= 3);
  }

  TEST_CASE("narrower networks keep all shapes but the channels") {
    for (const std::string zoo : {"ssd300", "ssd512"}) {
      config::ModelConfig model = Zoo(zoo), narrow = model;
      narrow.width = 0.25, narrow.batch_norm = true;
      const std::int64_t side = zoo == "ssd300" ? 300 : 512;
      const Network full = Resolve(model, {1, side, side, 3}, Task::kDetection);
      const Network small = Resolve(narrow, {1, side, side, 3}, Task::kDetection);
      std::size_t norms = 0;
      for (const Node& node : small.nodes) {
        if (node.config.kind == "batch_norm") {
          ++norms;
          continue;
        }
        const Node& wide = full.nodes[&node - small.nodes.data() - norms];
        CAPTURE(node.config.name);
        CHECK(node.config.name == wide.config.name);
        CHECK(node.output.h == wide.output.h);
        CHECK(node.output.w == wide.output.w);
        const bool head = node.config.name.starts_with("multibox.") || node.output.h == 1;
        if (!head) CHECK(4 * node.output.c == wide.output.c);
        if (node.config.kind == "conv2d")
          CHECK(node.config.bias == node.config.name.starts_with("multibox."));
      }
      CHECK(norms == (zoo == "ssd300" ? 23 : 25));
      CHECK(small.shape(small.outputs[0]) == full.shape(full.outputs[0]));
      CHECK(small.shape(small.outputs[1]) == full.shape(full.outputs[1]));
    }
  }
}

}  // namespace
}  // namespace ada::graph::test
