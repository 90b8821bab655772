// ImageNet's networks against torchvision's: parameters and operations as its documentation tells
// them, names and shapes as recorded from its state dicts (tests/golden/torchvision).
#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "graph/fake_backend.h"
#include "graph/network/parameters.h"
#include "graph/network/shapes.h"
#include "graph/network/zoo.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

constexpr Shape kImage{1, 224, 224, 3};

Network Of(const std::string& zoo) {
  config::ModelConfig model = Zoo(zoo);
  model.classes = 1000;
  return Resolve(model, kImage);
}

const Node& NodeOf(const Network& network, const std::string& name) {
  for (const Node& node : network.nodes)
    if (node.config.name == name) return node;
  FAIL("no layer " << name);
  return network.nodes.front();
}

// "name [dim, dim]" as Python prints them, of all tensors of the network's state.
std::vector<std::string> State(const Network& network) {
  FakeBackend backend;
  std::vector<std::string> lines;
  for (const Parameter& parameter :
       MakeParameters(network, /*training=*/false, backend, nullptr).all) {
    std::string dims;
    for (const std::int64_t dim : parameter.dims)
      dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
    lines.push_back(parameter.name + " [" + dims + "]");
  }
  return lines;
}

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

struct Facts {
  std::int64_t parameters;
  double gflops;          // multiply-adds
  int parameter_tensors;  // len(list(model.parameters()))
  int depth;
};

TEST_SUITE("cpu") {
  TEST_CASE("parameters, operations and tensors are torchvision's") {
    const std::map<std::string, Facts> known = {{"resnet18", {11'689'512, 1.81, 62, 18}},
                                                {"resnet34", {21'797'672, 3.66, 110, 34}},
                                                {"resnet50", {25'557'032, 4.09, 161, 50}},
                                                {"resnet101", {44'549'160, 7.80, 314, 101}},
                                                {"resnet152", {60'192'808, 11.51, 467, 152}},
                                                {"wide_resnet50_2", {68'883'240, 11.40, 161, 50}},
                                                {"mobilenet_v2", {3'504'872, 0.30, 158, 53}},
                                                {"densenet121", {7'978'856, 2.83, 364, 121}}};
    for (const auto& [zoo, facts] : known) {
      CAPTURE(zoo);
      const Network network = Of(zoo);
      CHECK(network.trained_numel() == facts.parameters);
      CHECK(network.mflop() / 2000 == doctest::Approx(facts.gflops).epsilon(0.004));
      int tensors = 0, depth = 0;
      for (const Node& node : network.nodes) {
        const bool product = node.config.kind == "conv2d" || node.config.kind == "linear";
        if (product) tensors += node.config.bias ? 2 : 1;
        if (node.config.kind == "batch_norm") tensors += 2;
        depth += product && node.config.name.find("downsample") == std::string::npos;
      }
      CHECK(tensors == facts.parameter_tensors);
      CHECK(depth == facts.depth);
    }
  }

  TEST_CASE("the state has the names, shapes and order of torchvision's state dicts") {
    for (const std::string zoo : {"resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
                                  "wide_resnet50_2", "mobilenet_v2", "densenet121"}) {
      CAPTURE(zoo);
      const std::vector<std::string> known = Lines("tests/golden/torchvision/" + zoo + ".txt");
      const std::vector<std::string> ours = State(Of(zoo));
      REQUIRE(known.size() > 100);
      REQUIRE(ours.size() == known.size());
      for (std::size_t i = 0; i < known.size(); ++i) CHECK(ours[i] == known[i]);
    }
  }

  TEST_CASE("the stem, the stages and where a bottleneck strides") {
    const Network network = Of("resnet50");
    CHECK(NodeOf(network, "conv1").output == Shape{1, 112, 112, 64});
    const Node& pool = NodeOf(network, "maxpool");
    CHECK(pool.output == Shape{1, 56, 56, 64});
    CHECK(pool.config.padding == std::array<int, 2>{1, 1});
    CHECK(NodeOf(network, "layer1.2.relu3").output == Shape{1, 56, 56, 256});
    CHECK(NodeOf(network, "layer2.0.conv1").config.stride == std::array<int, 2>{1, 1});
    CHECK(NodeOf(network, "layer2.0.conv2").config.stride == std::array<int, 2>{2, 2});
    CHECK(NodeOf(network, "layer2.0.conv2").config.padding == std::array<int, 2>{1, 1});
    CHECK(NodeOf(network, "layer2.0.downsample.0").config.stride == std::array<int, 2>{2, 2});
    CHECK(NodeOf(network, "layer2.0.downsample.0").input == Shape{1, 56, 56, 256});
    CHECK(NodeOf(network, "layer2.0.add").output == Shape{1, 28, 28, 512});
    CHECK(NodeOf(network, "layer4.2.relu3").output == Shape{1, 7, 7, 2048});
    CHECK(NodeOf(network, "avgpool").output == Shape{1, 1, 1, 2048});
  }

  TEST_CASE("the list counts them with 1000 classes") {
    const std::vector<std::string> lines = ListModels();
    const auto has = [&](const std::string& line) {
      return std::find(lines.begin(), lines.end(), line) != lines.end();
    };
    CHECK(has("resnet50           25557032 parameters   8178.4 MFLOP at 224x224x3"));
    CHECK(has("mobilenet_v2        3504872 parameters    601.5 MFLOP at 224x224x3  keys: dropout"));
  }
}

}  // namespace
}  // namespace ada::graph::test
