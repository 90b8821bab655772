// --set: what it sets, what it drops with a note, and that its values pass the same checks.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "config/load.h"
#include "config/refusal.h"
#include "temp_folder.h"

namespace ada::config {

namespace {

constexpr char kFile[] = R"(name: base
device: {kind: auto, threads: 2}
data:
  dataset: cifar10
  path: data/cifar-10
  normalize: standard
model:
  zoo: resnet20
  shortcut: B
scaling:
  policy: adaptive
  underflow_target: 1e-3
  layers: [{match: fc, underflow_target: 1e-4}]
optimizer:
  kind: sgd
  lr: 0.1
  momentum: 0.9
schedule: {kind: multistep, milestones: [1]}
)";

Loaded Set(const Overrides& overrides) { return LoadText(kFile, "f.yaml", overrides); }

std::string MessageOf(const Overrides& overrides) {
  return RefusalOf([&] { Set(overrides); });
}

using Lines = std::vector<std::string>;

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("single keys, in the order given") {
    const Config config = Set({{"data.batch_size", "64"},
                               {"log.statistics", "[dx]"},
                               {"train.epochs", "7"},
                               {"train.epochs", "8"},
                               {"data.augment.pad", "4"},
                               {"name", "other"}})
                              .config;
    CHECK(config.data.batch_size == 64);
    CHECK(config.log.statistics == Lines{"dx"});
    CHECK(config.train.epochs == 8);
    CHECK(config.data.augment.pad == 4);
    CHECK(config.output == "runs/other");
    CHECK(config.model.shortcut == "B");
  }

  TEST_CASE("a choice drops the file's keys that it does not know") {
    const Loaded policy = Set({{"scaling.policy", "fixed"}, {"scaling.scale", "1024"}});
    CHECK(policy.config.scaling.policy == "fixed");
    CHECK(policy.config.scaling.scale == 1024);
    CHECK(policy.notes ==
          Lines{"f.yaml:12:3: scaling.underflow_target dropped: policy fixed does not know it",
                "f.yaml:13:3: scaling.layers dropped: policy fixed does not know it"});
    CHECK(policy.config.scaling.layers.empty());

    const Loaded data = Set({{"data.dataset", "synthetic"}});
    CHECK(data.config.data.dataset == "synthetic");
    CHECK(data.notes == Lines{"f.yaml:5:3: data.path dropped: dataset synthetic does not know it"});

    const Loaded zoo = Set({{"model.zoo", "lenet"}});
    CHECK(zoo.notes == Lines{"f.yaml:9:3: model.shortcut dropped: zoo lenet does not know it"});

    const Loaded optimizer = Set({{"optimizer.kind", "adam"}});
    CHECK(optimizer.notes ==
          Lines{"f.yaml:17:3: optimizer.momentum dropped: kind adam does not know it"});
    CHECK(optimizer.config.optimizer.lr == 0.1);

    const Loaded schedule = Set({{"schedule.kind", "cosine"}});
    CHECK(schedule.notes ==
          Lines{"f.yaml:18:29: schedule.milestones dropped: kind cosine does not know it"});

    const Loaded layers = Set({{"model.layers", "[{name: fc, kind: linear, features: 10}]"}});
    CHECK(layers.config.model.zoo.empty());
    CHECK(layers.notes ==
          Lines{"f.yaml:8:3: model.zoo dropped: --set model.layers replaces it",
                "f.yaml:9:3: model.shortcut dropped: --set model.layers replaces it"});

    CHECK(Set({{"scaling.preset", "apex"}, {"scaling.policy", "dynamic"}}).notes.size() == 2);
    CHECK(Set({}).notes.empty());

    // Both policies know it, but only one method uses it.
    const std::string rest =
        "data: {dataset: mnist, path: nowhere}\nmodel: {zoo: lenet}\noptimizer: {lr: 0.1}\n";
    const std::string fixed = "scaling: {policy: fixed, scale: 64}\n" + rest;
    const Loaded unused = LoadText(fixed, "g.yaml", {{"scaling.policy", "adaptive"}});
    CHECK(unused.notes == Lines{"g.yaml:1:26: scaling.scale dropped: no method uses it"});
    CHECK(LoadText(fixed, "g.yaml", {{"scaling.policy", "adaptive"}, {"scaling.method", "fixed"}})
              .notes.empty());
    const std::string adaptive = "scaling: {policy: adaptive, scale: 64}\n" + rest;
    CHECK_THROWS_WITH_AS(LoadText(adaptive, "g.yaml", {}), doctest::Contains("no layer has it"),
                         ConfigError);
    CHECK_THROWS_WITH_AS(
        LoadText(rest, "g.yaml", {{"scaling.policy", "adaptive"}, {"scaling.scale", "64"}}),
        doctest::Contains("no layer has it"), ConfigError);
  }

  TEST_CASE("layers: a number of a transformer's blocks, or a list in place of it") {
    const std::string rest = std::string(kFile).substr(std::string(kFile).find("scaling:"));
    const std::string data = "data: {dataset: synthetic}\n";
    const auto set = [&](const std::string& model, const Overrides& overrides) {
      return LoadText(data + "model: " + model + "\n" + rest, "f.yaml", overrides);
    };
    const Loaded deeper = set("{zoo: vit, width: 64}", {{"model.layers", "6"}});
    CHECK(deeper.config.model.transformer.layers == 6);
    CHECK(deeper.config.model.transformer.width == 64);
    CHECK(deeper.config.model.zoo == "vit");
    CHECK(deeper.notes.empty());
    CHECK(set("{zoo: vit, layers: 2}", {}).config.model.transformer.layers == 2);

    const std::string own = "[{name: fc, kind: linear, features: 10}]";
    const Loaded list = set("{zoo: vit, layers: 2, heads: 2}", {{"model.layers", own}});
    CHECK(list.config.model.zoo.empty());
    CHECK(list.config.model.layers.size() == 1);
    CHECK(list.notes.size() == 2);  // zoo and heads
    const Loaded zoo = set("{layers: " + own + "}", {{"model.zoo", "vit"}});
    CHECK(zoo.config.model.layers.empty());
    CHECK(zoo.notes == Lines{"f.yaml:2:9: model.layers dropped: zoo vit does not know it"});
    CHECK(set("{zoo: vit, layers: 3}", {{"model.zoo", "resnet20"}}).notes ==
          Lines{"f.yaml:2:19: model.layers dropped: zoo resnet20 does not know it"});
    CHECK(RefusalOf([&] { set("{zoo: vit, layers: " + own + "}", {}); }) ==
          "f.yaml:2:19: model.layers: give either zoo or layers, not both");
    CHECK(RefusalOf([&] { set("{zoo: resnet20, layers: 3}", {}); }) ==
          "f.yaml:2:24: model.layers: does not belong to zoo resnet20, only to gpt2, llama, vit, "
          "gpt2_124m, llama_tiny and vit_b_16");
    CHECK(RefusalOf([&] { set("{layers: 3}", {}); }) ==
          "f.yaml:2:17: model.layers: expected a list of layers; got '3'");
  }

  TEST_CASE("another preset drops the keys of the file's preset") {
    const std::string file = std::string(kFile).replace(
        std::string(kFile).find("scaling:"),
        std::string(kFile).find("optimizer:") - std::string(kFile).find("scaling:"),
        "scaling:\n  policy: dynamic\n  preset: deepspeed\n  hysteresis: 4\n"
        "  consecutive_hysteresis: true\n  growth_interval: 10\n");
    const Loaded jmp = LoadText(file, "f.yaml", {{"scaling.preset", "jmp"}});
    CHECK(
        jmp.notes ==
        Lines{"f.yaml:13:3: scaling.hysteresis dropped: preset jmp does not know it",
              "f.yaml:14:3: scaling.consecutive_hysteresis dropped: preset jmp does not know it"});
    CHECK(jmp.config.scaling.growth_interval == 10);
    CHECK_FALSE(jmp.config.scaling.hysteresis.has_value());
    const Loaded megatron = LoadText(file, "f.yaml", {{"scaling.preset", "megatron"}});
    CHECK(megatron.notes.size() == 1);
    CHECK(megatron.config.scaling.hysteresis == 4);
    CHECK(LoadText(file, "f.yaml", {{"scaling.policy", "dynamic"}}).notes.empty());
    const Loaded layerwise = LoadText(file, "f.yaml", {{"scaling.policy", "layerwise_dynamic"}});
    CHECK(layerwise.notes.size() == 3);
    CHECK(layerwise.config.scaling.growth_interval == 10);
  }

  TEST_CASE("another policy drops keys of single layers too") {
    const Loaded loaded = Set({{"scaling.policy", "layerwise_dynamic"}});
    CHECK(loaded.notes == Lines{"f.yaml:12:3: scaling.underflow_target dropped: policy "
                                "layerwise_dynamic does not know it",
                                "f.yaml:13:24: scaling.layers[].underflow_target dropped: policy "
                                "layerwise_dynamic does not know it"});
    REQUIRE(loaded.config.scaling.layers.size() == 1);
    CHECK(loaded.config.scaling.layers[0].match == "fc");
    CHECK_FALSE(loaded.config.scaling.layers[0].underflow_target.has_value());
  }

  TEST_CASE("tensor scaling: the short form keeps or drops the map's keys") {
    const std::string file =
        std::string(kFile) + "precision: {tensor_scaling: {kind: delayed, history: 5}}\n";
    const auto set = [&](const Overrides& overrides) {
      return LoadText(file, "f.yaml", overrides);
    };
    CHECK(set({{"precision.tensor_scaling", "delayed"}}).config.precision.tensor_scaling.history ==
          5);
    const Loaded none = set({{"precision.tensor_scaling", "none"}});
    CHECK(none.config.precision.tensor_scaling.kind == TensorScalingConfig::Kind::kNone);
    CHECK(none.notes == Lines{"f.yaml:19:45: precision.tensor_scaling.history dropped: kind none "
                              "does not know it"});
    const Config history = LoadText(std::string(kFile) + "precision: {tensor_scaling: delayed}\n",
                                    "f.yaml", {{"precision.tensor_scaling.history", "7"}})
                               .config;
    CHECK(history.precision.tensor_scaling.history == 7);
  }

  TEST_CASE("a map replaces its section, without notes") {
    const Loaded loaded = Set({{"scaling", "{policy: fixed, scale: 8}"}});
    CHECK(loaded.config.scaling.scale == 8);
    CHECK(loaded.notes.empty());
  }

  TEST_CASE("device: the short form keeps the threads") {
    CHECK(Set({{"device", "cpu"}}).config.device.kind == DeviceKind::kCpu);
    CHECK(Set({{"device", "cpu"}}).config.device.threads == 2);
    CHECK(Set({{"device.kind", "cuda:1"}, {"device.threads", "5"}}).config.device.threads == 5);
    const Config config =
        LoadText("device: cpu\n" + std::string(kFile).substr(std::string(kFile).find("data:")),
                 "f.yaml", {{"device.threads", "3"}})
            .config;
    CHECK(config.device.kind == DeviceKind::kCpu);
    CHECK(config.device.threads == 3);
  }

  TEST_CASE("a key below a plain value makes a map of it, with a note") {
    const Loaded loaded = Set(
        {{"data.normalize.mean", "[0.5, 0.5, 0.5]"}, {"data.normalize.std", "[0.2, 0.2, 0.2]"}});
    CHECK(loaded.config.data.normalize.kind == NormalizeConfig::Kind::kCustom);
    CHECK(loaded.notes == Lines{"f.yaml:6:3: data.normalize: standard dropped for --set "
                                "data.normalize.mean"});
  }

  TEST_CASE("wrong overrides: exact messages") {
    struct Row {
      Overrides overrides;
      std::string message;
    };
    const std::vector<Row> rows = {
        {{{"data.batch_size", "many"}},
         "--set data.batch_size: expected a whole number, 1 to 1000000; got 'many'"},
        {{{"data.batch_size", "010"}},
         "--set data.batch_size: expected a whole number, 1 to 1000000; got '010' (leading zeros "
         "mean octal to some readers)"},
        {{{"data.batchsize", "1"}},
         "--set data.batchsize: unknown key; did you mean 'batch_size'?"},
        {{{"scalling.policy", "none"}},
         "--set scalling.policy: scalling: unknown key; did you mean 'scaling'?"},
        {{{"scaling.policy", "adaptve"}},
         "--set scaling.policy: expected one of none, fixed, dynamic, adaptive, layerwise_dynamic, "
         "logmax, histogram; got 'adaptve'; did you mean 'adaptive'?"},
        {{{"scaling.policy", "dynamic"}, {"scaling.preset", "jmp"}, {"scaling.tolerance", "0.1"}},
         "--set scaling.tolerance: does not belong to preset jmp, only to fairseq and cerebras"},
        {{{"precision.tensor_scaling.history", "16"}},
         "--set precision.tensor_scaling.history: precision.tensor_scaling.kind: missing; it has "
         "no default"},
        {{{"precision.format", "{exponent: 5}"}},
         "--set precision.format: precision.format.mantissa: missing; it has no default"},
        {{{"scaling.policy", "fixed"}},
         "f.yaml:10:1: scaling.scale: missing; policy fixed needs it"},
        {{{"scaling.scale", "8"}, {"scaling.policy", "dynamic"}},
         "--set scaling.scale: does not belong to policy dynamic, only to fixed and adaptive"},
        {{{"scaling", "{policy: fixed, sale: 8}"}},
         "--set scaling: scaling.scale: missing; policy fixed needs it\n--set scaling: "
         "scaling.sale: unknown key; did you mean 'scale'?"},
        {{{"scaling", "{policy: none, policy: none}"}},
         "--set scaling: scaling.policy: duplicate key, first given in line 1"},
        {{{"log.dump", "[conv1]"}},
         "--set log.dump: names layers, but nothing is dumped; set dump_every, the steps between "
         "dumps"},
        {{{"log.histogram_every", "0"}, {"log.what_if", "[{scale: 8}]"}},
         "--set log.what_if: is judged from histograms; set histogram_every, the steps between "
         "them"},
        {{{"data.path", ""}}, "--set data.path: expected text; got nothing"},
        {{{"data.limit", "[1"}}, "--set data.limit: '[1': this '[' is never closed by a ']'"},
        {{{"data..limit", "1"}}, "--set data..limit: expected a key such as scaling.policy"},
        {{{"", "1"}}, "--set : expected a key such as scaling.policy"},
        {{{"scaling.layers.match", "fc"}},
         "--set scaling.layers.match: scaling.layers is a list; set the whole list: --set "
         "'scaling.layers=[...]'"},
        {{{"train.accumulate", "3"}},
         "--set train.accumulate: batch_size, 128, must be a multiple of train.accumulate, 3"},
        {{{"data.dataset", "cifar100"}, {"model.classes", "10"}},
         "--set model.classes: the data set has 100 classes; got 10"},
    };
    for (const Row& row : rows) {
      CAPTURE(row.overrides.front().first);
      CHECK(MessageOf(row.overrides) == row.message);
    }
  }

  TEST_CASE("keys from a file: messages and notes have its places") {
    const ada::testing::TempFolder folder;
    const std::string path = folder.path() + "/more.yaml";
    const auto from = [&](const std::string& text) {
      folder.Write("more.yaml", text);
      return OverridesFrom(path);
    };
    CHECK(from("# nothing to change\n\n  # at all\n").empty());
    CHECK(RefusalOf([&] { from(""); }) ==
          path + ": is empty; expected a configuration (see configs/README.md)");
    CHECK(RefusalOf([&] { from("seed: 1\nseed: 2\n"); }) ==
          path + ":2:1: seed: duplicate key, first given in line 1");
    CHECK(MessageOf(from("seed: 1\ntrain:\n  epochs: x\n")) ==
          path + ":3:3: train.epochs: expected a whole number, 0 to 1000000; got 'x'");
    CHECK(Set(from("scaling: {policy: none}\n")).notes ==
          Lines{"f.yaml:12:3: scaling.underflow_target dropped: policy none does not know it",
                "f.yaml:13:3: scaling.layers dropped: policy none does not know it"});
    Overrides both = from("train: {epochs: 2}\n");
    both.emplace_back("train.epochs", "x");
    CHECK(MessageOf(both) == "--set train.epochs: expected a whole number, 0 to 1000000; got 'x'");
  }

  TEST_CASE("problems of the file come first, those of --set in their order") {
    CHECK(
        MessageOf({{"seed", "x"}, {"train.epochs", "0"}, {"model.zoo", "vgg12"}}) ==
        "--set seed: expected a whole number, 0 or more; got 'x'\n"
        "--set train.epochs: expected 1 or more; 0 goes with max_steps\n"
        "--set model.zoo: expected one of mlp, lenet, resnet20, resnet32, resnet44, resnet56, "
        "resnet110, preresnet20, preresnet32, preresnet44, preresnet56, preresnet110, "
        "preresnet164, wide_resnet28_10, wide_resnet16_8, vgg11, vgg13, vgg16, vgg19, resnet18, "
        "resnet34, resnet50, resnet101, resnet152, wide_resnet50_2, mobilenet_v2, densenet121, "
        "segnet_basic, segnet, ssd300, ssd512, gpt2, llama, vit, gpt2_124m, llama_tiny, vit_b_16; "
        "got 'vgg12'; did you mean 'vgg11'?");
  }

  TEST_CASE("YamlText reads back to exactly the text") {
    for (const std::string text : {"plain", "a: b", "[x]", "010", "true", "~", "it's \"so\" \\ ",
                                   "-", "#x", "a#b", "null", " x", "\u00e4", "{i}", "a,b", "*x"}) {
      CAPTURE(text);
      CHECK(Set({{"name", YamlText(text)}}).config.name == text);
    }
  }
}

}  // namespace ada::config
