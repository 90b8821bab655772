// The keys of tasks: what they read to, that they are written and read back, and that data, network
// and keys of another task are refused at their place.
#include <doctest/doctest.h>

#include <string>

#include "config/load.h"
#include "config/refusal.h"

namespace ada::config {
namespace {

constexpr char kPixels[] =
    "task: segmentation\n"
    "data: {dataset: camvid, path: a}\n"
    "model: {zoo: segnet_basic, classes: 3}\n"
    "train: {class_weights: [1, 0.5, 2]}\n";
constexpr char kBoxes[] =
    "task: detection\n"
    "data: {dataset: voc, path: a}\n"
    "model: {zoo: ssd300}\n"
    "detection: {score: 0.1, negatives: 2}\n";

Config Of(const std::string& text, const Overrides& overrides = {}) {
  return LoadText(text, "t.yaml", overrides).config;
}

std::string Refused(const std::string& text, const Overrides& overrides = {}) {
  return RefusalOf([&] { Of(text, overrides); });
}

TEST_SUITE("cpu") {
  TEST_CASE("tasks are read, written and read back") {
    const Config pixels = Of(kPixels, {{"evaluate.recompute_batch_norm", "reference"}});
    CHECK(pixels.task == Task::kSegmentation);
    CHECK(pixels.train.class_weights.values == std::vector<double>{1, 0.5, 2});
    CHECK(pixels.evaluate.batch_norm == BatchNormStatistics::kReference);
    CHECK(ToYaml(Of(ToYaml(pixels))) == ToYaml(pixels));
    CHECK(ToYaml(pixels).find("detection") == std::string::npos);

    const Config boxes =
        Of(kBoxes,
           {{"detection.boxes",
             "{grids: [4, 2], steps: [8, 16], sizes: [8, 20, 30.5], aspect_ratios: [[2], []]}"},
            {"evaluate.recompute_batch_norm", "true"}});
    CHECK(boxes.task == Task::kDetection);
    CHECK(boxes.detection.negatives == 2);
    CHECK(boxes.detection.boxes.sizes.at(2) == 30.5);
    CHECK(boxes.detection.boxes.aspect_ratios.at(1).empty());
    CHECK(boxes.evaluate.batch_norm == BatchNormStatistics::kRecomputed);
    CHECK(ToYaml(Of(ToYaml(boxes))) == ToYaml(boxes));
    CHECK(Of(kPixels, {{"train.class_weights", "median_frequency"}}).train.class_weights.kind ==
          ClassWeightsConfig::Kind::kMedianFrequency);
    const Config none = Of("data: {dataset: synthetic}\nmodel: {zoo: lenet}\n");
    CHECK(none.task == Task::kClassification);
    for (const char* key : {"task", "detection", "class_weights", "recompute"})
      CHECK(ToYaml(none).find(key) == std::string::npos);
  }

  TEST_CASE("language: keys of texts, the length in steps, what is for images") {
    const std::string model =
        "model: {layers: [{name: fc, kind: linear, features: classes}]}\ntask: language\n";
    const Config text =
        Of("data: {dataset: text, path: [a, b], context: 16, validation: 0.1}\n" + model,
           {{"train.max_steps", "7"}, {"evaluate.metric", "loss"}});
    CHECK(text.task == Task::kLanguage);
    CHECK(text.data.validation_share == 0.1);
    CHECK(text.data.more_paths == std::vector<std::string>{"b"});
    CHECK(text.train.epochs == 0);
    CHECK(text.evaluate.metric == BestMetric::kLoss);
    CHECK(ToYaml(Of(ToYaml(text))) == ToYaml(text));
    for (const char* key : {"normalize", "augment", "layout", "element:"})
      CHECK(ToYaml(text).find(key) == std::string::npos);
    const Config tokens =
        Of("data: {dataset: tokens, path: a, context: 2, element: uint32}\n" + model);
    CHECK(tokens.data.element == data::TokenType::kUint32);
    CHECK(tokens.train.epochs == 1);
    CHECK(ToYaml(Of(ToYaml(tokens))) == ToYaml(tokens));
    CHECK(Of("data: {dataset: tensors, path: a, validation: 3}\n" + model).data.validation == 3);
    CHECK(
        Of("data: {dataset: tensors, path: a}\n" + model, {{"train", "{max_steps: 2, epochs: 3}"}})
            .train.epochs == 3);

    CHECK(Refused("data: {dataset: text, path: a}\n" + model) ==
          "t.yaml:1:1: data.context: missing; dataset text needs it");
    CHECK(Refused("data: {dataset: text, path: a, context: 4, validation: 10}\n" + model) ==
          "t.yaml:1:56: data.validation: expected a share of the text, 0 or more and below 1; got "
          "10");
    CHECK(Refused("data: {dataset: tensors, path: a, validation: 0.5}\n" + model) ==
          "t.yaml:1:47: data.validation: expected a whole number of sequences; a share is for "
          "images, "
          "text and tokens");
    CHECK(Refused("data: {dataset: tensors, path: a, normalize: none, layout: hwc}\n" + model) ==
          "t.yaml:1:46: data.normalize: is for images, and the task is language\n"
          "t.yaml:1:60: data.layout: is for images, and the task is language");
    CHECK(Refused("data: {dataset: text, path: a, context: 4}\n"
                  "model: {layers: [{name: fc, kind: linear, features: classes}]}\n") ==
          "t.yaml:1:17: data.dataset: text is for another task; expected `task: language` beside "
          "the sections");
    CHECK(Refused("data: {dataset: synthetic}\n" + model) ==
          "t.yaml:1:17: data.dataset: synthetic is for task classification, and the task is "
          "language");
    CHECK(Refused("data: {dataset: tensors, path: a, vocabulary: 5}\nmodel: {zoo: lenet}\n") ==
          "t.yaml:1:47: data.vocabulary: belongs to task language, and the task is classification");
    CHECK(Refused("data: {dataset: synthetic}\nmodel: {zoo: lenet}\ntrain: {epochs: 0}\n") ==
          "t.yaml:3:17: train.epochs: expected 1 or more; 0 goes with max_steps");
  }

  TEST_CASE("words in quotes, as JSON has them, are the words") {
    const Config boxes = Of(R"({"task": "detection", "data": {"dataset": "voc", "path": "a"},
      "model": {"zoo": "ssd300"}, "detection": {"boxes": "ssd300"},
      "evaluate": {"recompute_batch_norm": "reference"}})");
    CHECK(boxes.detection.boxes.preset == "ssd300");
    CHECK(boxes.evaluate.batch_norm == BatchNormStatistics::kReference);
    CHECK(Of(kPixels, {{"train.class_weights", "\"median_frequency\""}}).train.class_weights.kind ==
          ClassWeightsConfig::Kind::kMedianFrequency);
    CHECK(Refused(kPixels, {{"evaluate.recompute_batch_norm", "\"true\""}}) ==
          "--set evaluate.recompute_batch_norm: expected true, false or reference; got 'true' in "
          "quotes, which is text");
  }

  TEST_CASE("a layer's bound beyond the section's is refused once defaults are known") {
    const auto refused = [](const std::string& layers) {
      return RefusalOf([&] {
        Config config =
            Of("data: {dataset: synthetic}\nmodel: {zoo: lenet}\nscaling:\n"
               "  policy: layerwise_dynamic\n  min_scale: 16\n  layers:\n" +
               layers);
        FillDefaults(config);
      });
    };
    CHECK(refused("    - {match: \"conv*\", max_scale: 4}\n") ==
          "t.yaml:7:7: scaling.layers[].max_scale: 4 is below min_scale, 16, of `scaling` (given, "
          "or the policy's own), for layers 'conv*'; give both here");
    // The policy's own ceiling is 2^126.
    CHECK(refused("    - {match: fc, min_scale: 1.7e38}\n")
              .starts_with("t.yaml:7:7: scaling.layers[].min_scale: 1.7e+38 is above max_scale, "));
    CHECK(refused("    - {match: conv1, min_scale: 2}\n    - {match: fc1, max_scale: 4}\n")
              .starts_with("t.yaml:8:7: scaling.layers[].max_scale: 4 is below"));
    CHECK(refused("    - {match: \"*\", min_scale: 2}\n    - {match: fc1, max_scale: 4}\n") ==
          "(accepted)");
    CHECK(refused("    - {match: fc1, min_scale: 2, max_scale: 4}\n") == "(accepted)");
  }

  TEST_CASE("what belongs to another task is refused at its place") {
    CHECK(Refused("data: {dataset: camvid, path: a}\nmodel: {zoo: segnet}\n") ==
          "t.yaml:1:17: data.dataset: camvid is for another task; expected `task: segmentation` "
          "beside the sections\n"
          "t.yaml:2:14: model.zoo: segnet is for another task; expected `task: segmentation` "
          "beside the sections");
    CHECK(Refused(std::string(kPixels) + "detection: {nms: 0.4}\n") ==
          "t.yaml:5:12: detection: belongs to task detection, and the task is segmentation");
    CHECK(Refused(kBoxes, {{"model", "{zoo: lenet}"}}) ==
          "--set model: model.zoo: lenet is for task classification, and the task is detection");
    CHECK(Refused(kBoxes, {{"train.class_weights", "median_frequency"}}) ==
          "--set train.class_weights: belongs to task segmentation, and the task is detection");
    CHECK(Refused(kPixels, {{"train.label_smoothing", "0.1"}}) ==
          "--set train.label_smoothing: belongs to task classification, and the task is "
          "segmentation");
    CHECK(Refused(kPixels, {{"train.class_weights", "[1, 2]"}}) ==
          "--set train.class_weights: expected one number a class, 3; got 2");
  }

  TEST_CASE("one class is enough for detection alone") {
    CHECK(Of(kBoxes, {{"model.classes", "1"}}).model.classes == 1);
    CHECK(Refused(kPixels, {{"model.classes", "1"}, {"train.class_weights", "none"}}) ==
          "--set model.classes: expected 2 or more; one class is for `task: detection`");
  }

  TEST_CASE("values that make no sense") {
    CHECK(Refused(kPixels, {{"train.class_weights", "[1, -2, 1]"}}).find("expected a number") !=
          std::string::npos);
    CHECK(Refused(kPixels, {{"train.class_weights", "often"}}) ==
          "--set train.class_weights: expected none, median_frequency or a list of numbers; got "
          "'often'");
    CHECK(Refused(kPixels, {{"evaluate.recompute_batch_norm", "1"}}) ==
          "--set evaluate.recompute_batch_norm: expected true, false or reference; got '1'");
    CHECK(Refused(kBoxes, {{"detection.variances", "[0.1]"}}) ==
          "--set detection.variances: expected two numbers: of centres, of sizes");
    CHECK(Refused(kBoxes, {{"detection.boxes",
                            "{grids: [4, 2], steps: [8], sizes: [8, 20], aspect_ratios: [[2]]}"}})
              .find("expected 3 for 2 feature maps (detection.boxes.grids); got 2") !=
          std::string::npos);
    CHECK(Refused(kBoxes, {{"detection.boxes", "ssd400"}}) ==
          "--set detection.boxes: expected ssd300, ssd512 or a map; got 'ssd400'");
    CHECK(Refused(kBoxes, {{"model", "{layers: [{name: a, kind: relu}]}"}})
              .find("detection.boxes: missing; a model of own layers needs its default boxes") !=
          std::string::npos);
  }
}

}  // namespace
}  // namespace ada::config
