// The outputs of a network: which layers they are, and what is said where they do not fit the task.
#include <doctest/doctest.h>

#include "error.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

std::string MessageOf(const config::ModelConfig& model, const Shape& input, Task task) {
  try {
    Resolve(model, input, task);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<std::string> OutputsOf(const Network& network) {
  std::vector<std::string> names;
  for (const int value : network.outputs) names.push_back(network.nodes[value - 1].config.name);
  return names;
}

using Names = std::vector<std::string>;

TEST_SUITE("cpu") {
  TEST_CASE("the last layer; of SSD its two joins; with a cast the casts") {
    const Shape image{1, 300, 300, 3};
    CHECK(OutputsOf(Resolve(Zoo("lenet"), {1, 28, 28, 1})) == Names{"fc3"});
    config::ModelConfig ssd = Zoo("ssd300"), segnet = Zoo("segnet_basic");
    CHECK(OutputsOf(Resolve(ssd, image, Task::kDetection)) == Names{"locations", "scores"});
    CHECK(OutputsOf(Resolve(segnet, image, Task::kSegmentation)) == Names{"conv_classifier"});
    ssd.cast = segnet.cast = true;
    CHECK(OutputsOf(Resolve(ssd, image, Task::kDetection)) ==
          Names{"cast.locations", "cast.scores"});
    CHECK(OutputsOf(Resolve(segnet, image, Task::kSegmentation)) == Names{"cast"});
  }

  TEST_CASE("segnet: the parameters of its paper, logits of each pixel, of odd sizes too") {
    config::ModelConfig model = Zoo("segnet");
    model.classes = 11;
    const Network network = Resolve(model, {1, 360, 480, 3}, Task::kSegmentation);
    CHECK(network.trained_numel() == 29'441'419);  // 29.5 million
    for (const std::string zoo : {"segnet", "segnet_basic"}) {
      model.zoo = zoo;
      const Network odd = Resolve(model, {1, 45, 61, 3}, Task::kSegmentation);
      CHECK(odd.shape(odd.outputs[0]) == Shape{1, 45, 61, 11});
    }
  }

  TEST_CASE("what does not fit the task is said with layer and place") {
    const Shape image{1, 6, 8, 3};
    config::ModelConfig ssd = SmallSsd(false);
    ssd.where = {"net.yaml", 3, 1};
    const std::string at = "net.yaml:3:1: ";
    CHECK(MessageOf(ssd, image, Task::kDetection) == "no error");
    ssd.outputs = {"locations", "score"};
    ssd.outputs_where = {{"net.yaml", 9, 12}, {"net.yaml", 9, 23}};
    CHECK(MessageOf(ssd, image, Task::kDetection) ==
          "net.yaml:9:23: model.outputs: no layer is called 'score'; did you mean 'scores'?");
    ssd.outputs = {"scores", "scores"};
    CHECK(MessageOf(ssd, image, Task::kDetection) ==
          "net.yaml:9:23: model.outputs: 'scores' stands twice");
    ssd.outputs = {}, ssd.outputs_where = {};
    CHECK(MessageOf(ssd, image, Task::kDetection) ==
          at + "model.outputs: `task: detection` takes two, locations and scores; found 1");
    ssd.outputs = {"locations", "scores"};
    ssd.classes = 7;
    CHECK(MessageOf(ssd, image, Task::kDetection) ==
          "layer scores: the second output gives the scores of boxes: expected 1x132x8 (as many "
          "boxes as layer locations, model.classes and the background), found 1x132x4");
    CHECK(MessageOf(ssd, image, Task::kSegmentation) ==
          at + "model.outputs: the loss of this task takes one; found 2");
    config::ModelConfig segnet = SmallSegNet();
    segnet.classes = 5;
    CHECK(MessageOf(segnet, image, Task::kSegmentation) ==
          "layer classifier: the last layer gives the logits of each pixel: expected output 6x8x5 "
          "(the image's size, model.classes), found 6x8x4");
    config::ModelConfig zoo = Zoo("segnet");
    zoo.where = ssd.where;
    CHECK(MessageOf(zoo, image, Task::kClassification) ==
          at + "model.zoo: segnet is a network for `task: segmentation`, found `task: "
               "classification`");
  }
}

}  // namespace
}  // namespace ada::graph::test
