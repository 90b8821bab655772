// model.file: a network in a file of its own.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/load.h"
#include "config/refusal.h"
#include "temp_folder.h"

namespace ada::config {
namespace {

constexpr char kData[] =
    "data: {dataset: synthetic, synthetic: {height: 8, width: 8, channels: 3, classes: 2}}\n";
constexpr char kNet[] =
    "# a comment\n"
    "model:\n"
    "  classes: 1000\n"
    "  init: {weights: net.safetensors, require_all: true}\n"
    "  layers:\n"
    "    - {name: conv1, kind: conv2d, channels: 4, kernel: 3}\n"
    "    - {name: pool, kind: global_avg_pool}\n"
    "    - {name: fc, kind: linear, features: classes}\n";

Loaded With(const std::string& model, const Overrides& overrides = {}) {
  return LoadText(std::string(kData) + "model: " + model + "\n", "c.yaml", overrides);
}
std::string Refusal(const std::string& model, const Overrides& overrides = {}) {
  return RefusalOf([&] { With(model, overrides); });
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the file stands for what it holds") {
    const testing::TempFolder folder;
    const std::string net = folder.Write("net.yaml", kNet);
    const Config named = With("{file: " + net + "}").config;
    const Config pasted = LoadText(std::string(kData) + kNet, "c.yaml", {}).config;
    CHECK(ToYaml(named) == ToYaml(pasted));
    CHECK(named.model.classes == 1000);
    CHECK(named.model.layers.size() == 3);
    CHECK(named.model.layers.back().is_per_class);
    CHECK(LoadText(ToYaml(named), "again.yaml", {}).config.model.layers.back().is_per_class);
    const std::string bare = folder.Write("bare.yaml", "zoo: mlp\nhidden: [7]\n");
    CHECK(With("{file: " + bare + "}").config.model.hidden == std::vector<int>{7});
  }

  TEST_CASE("keys beside it win, those of init one by one") {
    const testing::TempFolder folder;
    const std::string net = folder.Write("net.yaml", kNet);
    const ModelConfig model =
        With("{file: " + net + ", classes: 5, init: {skip: [fc]}}").config.model;
    CHECK(model.classes == 5);
    CHECK(model.init.skip == std::vector<std::string>{"fc"});
    CHECK(model.init.weights == "net.safetensors");
    CHECK(model.init.require_all);
    CHECK(With("{file: " + net + "}", {{"model.init.require_all", "false"}})
              .config.model.init.require_all == false);
  }

  TEST_CASE("--set names a file, or something else instead") {
    const testing::TempFolder folder;
    const std::string net = folder.Write("net.yaml", kNet);
    const Loaded file = With("{zoo: mlp, hidden: [3]}", {{"model.file", net}});
    CHECK(file.config.model.zoo.empty());
    CHECK(file.config.model.layers.size() == 3);
    REQUIRE(file.notes.size() == 2);
    CHECK(file.notes[0] == "c.yaml:2:9: model.zoo dropped: --set model.file replaces it");
    CHECK(file.notes[1] == "c.yaml:2:19: model.hidden dropped: --set model.file replaces it");
    const Loaded zoo = With("{file: " + net + "}", {{"model.zoo", "mlp"}});
    CHECK(zoo.config.model.zoo == "mlp");
    CHECK(zoo.config.model.layers.empty());
    REQUIRE(zoo.notes.size() == 1);
    CHECK(zoo.notes[0] == "c.yaml:2:9: model.file dropped: --set model.zoo replaces it");
  }

  TEST_CASE("weights that lie beside the file are found where the path leads nowhere") {
    const testing::TempFolder folder;
    const std::string net = folder.Write("net.yaml", kNet);
    const std::string weights = folder.Write("net.safetensors", "");
    const Loaded moved = With("{file: " + net + "}");
    CHECK(moved.config.model.init.weights == weights);
    REQUIRE(moved.notes.size() == 1);
    CHECK(moved.notes[0] == "c.yaml:2:15: " + net +
                                ":4:19: model.init.weights: there is no "
                                "net.safetensors; " +
                                weights + ", which lies beside the file, is taken");
  }

  TEST_CASE("messages name both files") {
    const testing::TempFolder folder;
    const auto refusal = [&](const std::string& text) {
      return Refusal("{file: " + folder.Write("net.yaml", text) + "}");
    };
    const std::string at = "c.yaml:2:15: " + folder.Write("net.yaml", "");
    CHECK(Refusal("{file: no.yaml}") ==
          "c.yaml:2:15: model.file: no.yaml: cannot be opened: No such file or directory");
    CHECK(refusal("model:\n  layers:\n    - {name: a, kind: reluu}\n")
              .starts_with(at + ":3:23: model.layers[].kind: expected one of "));
    CHECK(refusal("model: {zoo: mlp, zoo: lenet}\n") ==
          at + ":1:19: model.model.zoo: duplicate key, first given in line 1");
    CHECK(refusal("a: [").starts_with(at + ":1:"));
    CHECK(refusal("3").starts_with(at + ":1:1: expected the section `model:`"));
    CHECK(refusal("model: {zoo: mlp}\ntrain: {}\n") ==
          at + ":2:1: train: a file of model.file holds the section `model:` alone");
    CHECK(refusal("model: {file: b.yaml}\n") ==
          at + ":1:9: model.file: a file of model.file names no other");
    CHECK(refusal("model: {classes: 3}\n") ==
          at + ":1:8: model: expected `zoo:` or `layers:` in a file of model.file");
    CHECK(Refusal("{zoo: mlp, file: no.yaml}") ==
          "c.yaml:2:19: model.file: give either file or zoo, not both");
  }

  TEST_CASE("only a layer that has classes says so") {
    const std::string layers = "{layers: [{name: fc, kind: linear, features: ";
    CHECK(With(layers + "classes}]}").config.model.layers[0].is_per_class);
    CHECK(
        Refusal(layers + "class}]}") ==
        "c.yaml:2:53: model.layers[].features: expected a whole number, 1 to 1000000, or classes; "
        "got 'class'");
    CHECK(With(layers + "'classes'}]}").config.model.layers[0].is_per_class);
    CHECK(Refusal(layers + "'8'}]}").ends_with("got '8' in quotes, which is text"));
  }
}

}  // namespace ada::config
