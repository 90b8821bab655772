// What good configurations mean: values, defaults, short forms, and the way back to YAML.
#include "config/load.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "config/refusal.h"
#include "error.h"

namespace fs = std::filesystem;
namespace ada::config {

namespace {

constexpr char kSmallest[] =
    "data: {dataset: synthetic}\nmodel: {zoo: lenet}\noptimizer: {lr: 0.1}\n";

Config Read(const std::string& text) { return LoadText(text, "dir/text.yaml", {}).config; }

// The smallest document with one section replaced or added.
Config With(const std::string& section, const std::string& value) {
  return LoadText(kSmallest, "text.yaml", {{section, value}}).config;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("defaults") {
    const Config config = Read(kSmallest);
    CHECK(config.name == "text");
    CHECK(config.output == "runs/text");
    CHECK(config.file == "dir/text.yaml");
    CHECK(config.seed == 1);
    CHECK(config.device.kind == DeviceKind::kAuto);
    CHECK(config.device.threads == 0);
    CHECK(config.data.batch_size == 128);
    CHECK_FALSE(config.data.evaluate_batch_size);
    CHECK(config.data.shuffle);
    CHECK(config.data.drop_last);
    CHECK(config.data.normalize.kind == NormalizeConfig::Kind::kStandard);
    CHECK(config.data.augment.pad == 0);
    CHECK(config.model.classes == 10);
    CHECK(config.precision.format == ada::kFp32);
    CHECK_FALSE(config.precision.activations.has_value());
    CHECK_FALSE(config.precision.weight_gradients.has_value());
    CHECK(config.precision.rounding == RoundingKind::kNearest);
    CHECK(config.precision.tensor_scaling.kind == TensorScalingConfig::Kind::kNone);
    CHECK(config.precision.overflow == OverflowKind::kDefault);
    CHECK(config.scaling.policy == "none");
    CHECK_FALSE(config.scaling.init_scale.has_value());
    CHECK(config.optimizer.kind == backend::UpdateRule::Kind::kSgd);
    CHECK(config.optimizer.momentum == 0);
    CHECK(config.optimizer.weight_decay == 0);
    CHECK(config.schedule.kind == optim::Schedule::Kind::kConstant);
    CHECK(config.train.epochs == 1);
    CHECK(config.train.on_overflow == OnOverflow::kPreset);
    CHECK(config.train.max_retries == 100);
    CHECK(config.train.schedule_on_skip == ScheduleOnSkip::kAdvance);
    CHECK(config.log.every == 100);
    CHECK(config.log.statistics == std::vector<std::string>{"dx", "dy", "dw"});
    CHECK(config.checkpoint.every_epochs == 1);
    CHECK(config.checkpoint.keep == 2);
    CHECK(config.checkpoint.best);
  }

  TEST_CASE("defaults that depend on a choice") {
    CHECK(With("scaling", "{policy: dynamic, init_scale: 8}").scaling.init_scale == 8);
    CHECK(With("scaling", "{policy: adaptive}").scaling.adaptive.fan == scaling::Fan::kExact);
    CHECK(With("scaling", "{policy: adaptive, reference: true}").scaling.adaptive.fan ==
          scaling::Fan::kReference);
    CHECK(With("scaling", "{policy: adaptive, reference: true, fan: exact}").scaling.adaptive.fan ==
          scaling::Fan::kExact);
    CHECK(With("optimizer", "{kind: adam}").optimizer.lr == 1e-3);
    CHECK(With("optimizer", "{kind: adam}").optimizer.weight_decay == 0);
    CHECK(With("optimizer", "{kind: adamw}").optimizer.weight_decay == 1e-2);
    CHECK(With("data", "{dataset: cifar100, path: x}").model.classes == 100);
    CHECK(With("data", "{dataset: synthetic, synthetic: {classes: 7}}").model.classes == 7);
    const Config more = With("model", "{zoo: lenet, classes: 12}");
    CHECK(more.model.classes == 12);
  }

  TEST_CASE("spellings of numbers") {
    struct Row {
      const char* text;
      double value;
    };
    for (const Row& row : std::vector<Row>{{"1e-3", 1e-3},
                                           {"6e-08", 6e-08},
                                           {"1.0", 1.0},
                                           {"1", 1.0},
                                           {"+2.5", 2.5},
                                           {".5", 0.5},
                                           {"3.", 3.0},
                                           {"1E+2", 100.0},
                                           {"0.1", 0.1},
                                           {"2.2250738585072014e-308", 2.2250738585072014e-308},
                                           {"123456789012345678", 123456789012345678.0}}) {
      CAPTURE(row.text);
      CHECK(With("optimizer.lr", row.text).optimizer.lr == row.value);
    }
    CHECK(With("seed", "9223372036854775807").seed == 9223372036854775807u);
    CHECK(With("seed", "0").seed == 0);
  }

  TEST_CASE("short forms") {
    struct Row {
      const char* text;
      DeviceKind kind;
      int index;
    };
    for (const Row& row : std::vector<Row>{{"auto", DeviceKind::kAuto, 0},
                                           {"cpu", DeviceKind::kCpu, 0},
                                           {"cuda", DeviceKind::kCuda, 0},
                                           {"cuda:1", DeviceKind::kCuda, 1},
                                           {"{kind: cuda:3, threads: 2}", DeviceKind::kCuda, 3}}) {
      CAPTURE(row.text);
      const Config config = With("device", row.text);
      CHECK(config.device.kind == row.kind);
      CHECK(config.device.index == row.index);
    }
    const Config config = Read(std::string(kSmallest) + "device: cpu\n");
    CHECK(config.device.kind == DeviceKind::kCpu);
    CHECK(Read(std::string(kSmallest) + "precision: fp16\n").precision.format == kFp16);
    const Config eight = With("precision", "fp8_e5m2");
    CHECK(FormatName(eight.precision.format) == "fp8_e5m2");
    for (const auto& [text, count, share] :
         {std::tuple("0", 0, 0.0), {"500", 500, 0.0}, {"0.25", 0, 0.25}}) {
      CAPTURE(text);
      const Config held_back = With("data.validation", text);
      CHECK(held_back.data.validation == count);
      CHECK(held_back.data.validation_share == share);
    }
    CHECK(With("data.normalize", "none").data.normalize.kind == NormalizeConfig::Kind::kNone);
    const Config custom = With("data.normalize", "{mean: [0.5, 0, -1], std: [1, 2, 3]}");
    CHECK(custom.data.normalize.kind == NormalizeConfig::Kind::kCustom);
    CHECK(custom.data.normalize.mean == std::vector<double>{0.5, 0, -1});
    CHECK(custom.data.normalize.std == std::vector<double>{1, 2, 3});
  }

  TEST_CASE("layers: kinds, pairs and repeat") {
    const Config config = Read(R"(
data: {dataset: synthetic}
optimizer: {lr: 0.1}
model:
  layers:
    - {name: conv, kind: conv2d, channels: 8, kernel: [3, 5], stride: 2, padding: [1, 2], groups: 2}
    - {repeat: 2, layers: [
        {name: "b{i}.in", kind: relu},
        {name: "b{i}.conv", kind: conv2d, channels: 8, kernel: 1, bias: false},
        {name: "b{i}.add", kind: add, inputs: ["b{i}.in", "b{i}.conv"]}]}
    - {name: pool, kind: avg_pool, kernel: [2, 4]}
    - {name: pool2, kind: max_pool, kernel: 3, stride: 1, padding: 1}
    - {name: side, kind: relu, inputs: [input]}
    - {name: drop, kind: dropout, rate: 0.25}
    - {name: fc, kind: linear, features: 10}
)");
    const std::vector<LayerConfig>& layers = config.model.layers;
    REQUIRE(layers.size() == 12);
    CHECK(layers[0].kernel == std::array{3, 5});
    CHECK(layers[0].stride == std::array{2, 2});
    CHECK(layers[0].padding == std::array{1, 2});
    CHECK(layers[0].groups == 2);
    CHECK(layers[0].bias);
    CHECK(ToString(layers[0].where) == "dir/text.yaml:6:7");
    CHECK(layers[1].name == "b1.in");
    CHECK(layers[5].name == "b2.conv");
    CHECK_FALSE(layers[5].bias);
    CHECK(layers[6].inputs == std::vector<std::string>{"b2.in", "b2.conv"});
    CHECK(layers[7].stride == std::array{2, 4});  // pooling: the kernel
    CHECK(layers[8].stride == std::array{1, 1});
    CHECK(layers[10].rate == 0.25);
    CHECK(layers[11].features == 10);
    CHECK(config.model.zoo.empty());
  }

  TEST_CASE("formats: names and maps") {
    struct Row {
      const char* text;
      ada::NumberFormat format;
      const char* written;
    };
    const char* custom =
        "{exponent: 4, mantissa: 4, bias: 7, has_inf: true, has_nan: true, negative_zero: true, "
        "saturate: false, signed: true}";
    const char* saturating =
        "{exponent: 5, mantissa: 10, bias: 15, has_inf: true, has_nan: true, negative_zero: true, "
        "saturate: true, signed: true}";
    for (const Row& row :
         std::vector<Row>{{"fp32", ada::kFp32, "fp32"},
                          {"cb16", ada::kCb16, "cb16"},
                          {"fp8_e4m3", ada::kFp8E4M3, "fp8_e4m3"},
                          {"fp8_e5m2", ada::kFp8E5M2, "fp8_e5m2"},
                          {"'fp16'", ada::kFp16, "fp16"},
                          {"{exponent: 5, mantissa: 10}", ada::kFp16, "fp16"},
                          {"{exponent: 6, mantissa: 9}", ada::kCb16, "cb16"},
                          {"{exponent: 4, mantissa: 3, has_inf: false}", ada::kFp8E4M3, "fp8_e4m3"},
                          {"{exponent: 4, mantissa: 4}", {4, 4, 7}, custom},
                          {"{exponent: 5, mantissa: 10, saturate: true}",
                           {5, 10, 15, true, true, true, true},
                           saturating}}) {
      CAPTURE(row.text);
      const Config config = With("precision.gradients", row.text);
      CHECK(config.precision.gradients == row.format);
      CHECK(config.precision.format == ada::kFp32);
      CHECK(ToYaml(config).find("  gradients: " + std::string(row.written) + "\n") !=
            std::string::npos);
      CHECK(ReadFormat(row.text) == row.format);
    }
    CHECK_FALSE(ReadFormat("e8m0").is_signed);
  }

  TEST_CASE("formats of single layers: unset keys stay unset") {
    const Config config = With(
        "precision.layers",
        "[{match: fc, format: fp32}, {match: 'c*', activations: bf16, weight_gradients: fp16}]");
    REQUIRE(config.precision.layers.size() == 2);
    CHECK(config.precision.layers[0].format == ada::kFp32);
    CHECK_FALSE(config.precision.layers[0].activations.has_value());
    CHECK_FALSE(config.precision.layers[1].format.has_value());
    CHECK(config.precision.layers[1].activations == ada::kBf16);
    CHECK(config.precision.layers[1].weight_gradients == ada::kFp16);
    CHECK(ToString(config.precision.layers[1].where) == "--set precision.layers");
  }

  TEST_CASE("tensor scaling: a word or a map") {
    using Kind = TensorScalingConfig::Kind;
    const auto read = [](const char* text) {
      return With("precision", "{tensor_scaling: " + std::string(text) + "}")
          .precision.tensor_scaling;
    };
    CHECK(read("none").kind == Kind::kNone);
    CHECK(read("delayed").kind == Kind::kDelayed);
    CHECK(read("delayed").history == 1024);
    CHECK(read("delayed").margin == 0);
    const TensorScalingConfig map =
        read("{kind: delayed, history: 16, margin: 2, amax: most_recent, power_of_two: true}");
    CHECK(map.history == 16);
    CHECK(map.margin == 2);
    CHECK(map.amax == scaling::Amax::kMostRecent);
    CHECK(map.power_of_two);
  }

  TEST_CASE("per-layer scaling: unset keys stay unset") {
    const Config config = With("scaling",
                               "{policy: adaptive, layers: [{match: fc, method: fixed, scale: 8}, "
                               "{match: 'c*', power_of_two: false, fan: reference}]}");
    REQUIRE(config.scaling.layers.size() == 2);
    const scaling::LayerSettings& first = config.scaling.layers[0];
    CHECK(first.match == "fc");
    CHECK(first.method == scaling::LayerMethod::kFixed);
    CHECK(first.scale == 8);
    CHECK_FALSE(first.underflow_target.has_value());
    CHECK_FALSE(first.power_of_two.has_value());
    const scaling::LayerSettings& second = config.scaling.layers[1];
    CHECK(second.power_of_two == false);
    CHECK(second.fan == scaling::Fan::kReference);
    CHECK_FALSE(second.method.has_value());
  }

  TEST_CASE("JSON, a byte order mark, Windows line ends, anchors") {
    const Config json = Read(
        "{\"data\": {\"dataset\": \"synthetic\", \"batch_size\": 64},\n"
        "\t\"model\": {\"zoo\": \"lenet\"}, \"optimizer\": {\"lr\": 6e-08, \"nesterov\": "
        "false}}\n");
    CHECK(json.data.batch_size == 64);
    CHECK(json.optimizer.lr == 6e-08);
    CHECK(Read("\xEF\xBB\xBF" + std::string(kSmallest)).data.dataset == "synthetic");
    CHECK(Read("data:\r\n  dataset: synthetic\r\nmodel: {zoo: lenet}\r\noptimizer: {lr: 0.1}\r\n")
              .data.dataset == "synthetic");
    CHECK(Read("---\n" + std::string(kSmallest) + "...\n").optimizer.lr == 0.1);
    const Config shared = Read(std::string(kSmallest) +
                               "train: {max_steps: &n 7}\nlog: {every: *n}\nname: \"two words\"\n");
    CHECK(shared.log.every == 7);
    CHECK(shared.output == "runs/two words");
  }

  TEST_CASE("paths expand") {
    ::setenv("ADA_TEST_FOLDER", "/some/where", 1);
    const char* home = std::getenv("HOME");
    const auto path = [](const std::string& text) {
      return With("data", "{dataset: mnist, path: \"" + text + "\"}").data.path;
    };
    CHECK(path("${ADA_TEST_FOLDER}/mnist") == "/some/where/mnist");
    CHECK(path("a/${ADA_TEST_FOLDER}${ADA_TEST_FOLDER}") == "a//some/where/some/where");
    CHECK(path("$HOME/x~y") == "$HOME/x~y");
    if (home) CHECK(path("~/mnist") == home + std::string("/mnist"));
  }

  TEST_CASE("what is no UTF-8 does not get into a configuration") {
    const auto name = [](const std::string& file) {
      return LoadText(kSmallest, file, {}).config.name;
    };
    CHECK(name("x/m\xFCller.yaml") == "m\\xfcller");
    CHECK(name("m\xC3\xBCller.yaml") == "m\xC3\xBCller");
    CHECK(name("a\x1b[31m\n.yaml") == "a\\x1b[31m\\x0a");
    CHECK(RefusalOf([&] {
            name(std::string(201, 'a') + ".yaml");
          }).find("name: missing; the file's name is not usable") != std::string::npos);
    ::setenv("ADA_TEST_FOLDER", "/some/\xFC", 1);
    for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{
             {"output", "\"${ADA_TEST_FOLDER}/x\""},
             {"data", "{dataset: mnist, path: \"${ADA_TEST_FOLDER}/x\"}"},
             {"model.init.weights", "\"${ADA_TEST_FOLDER}/x\""}}) {
      CAPTURE(key);
      const std::string refusal = RefusalOf([&, &of = key, &is = value] { With(of, is); });
      CHECK(refusal.find("becomes '/some/\\xfc/x'; expected a path that is valid UTF-8") !=
            std::string::npos);
    }
    const char* root = std::getenv("ADA_DATA");
    const std::string kept = root ? root : "";
    ::setenv("ADA_DATA", "/some/\xFC", 1);
    CHECK(RefusalOf([&] { With("data", "{dataset: mnist}"); }).find("valid UTF-8") !=
          std::string::npos);
    root ? ::setenv("ADA_DATA", kept.c_str(), 1) : ::unsetenv("ADA_DATA");
  }

  TEST_CASE("every shipped configuration loads and comes back equal") {
    int files = 0;
    for (const auto& entry : fs::directory_iterator("configs")) {
      if (entry.path().extension() != ".yaml") continue;
      ++files;
      CAPTURE(entry.path().string());
      const Config config = Load(entry.path().string(), {}).config;
      CHECK(config.name == entry.path().stem().string());
      const std::string text = ToYaml(config);
      CHECK(ToYaml(LoadText(text, "again.yaml", {}).config) == text);
    }
    CHECK(files >= 11);
  }

  TEST_CASE("anchors within anchors do not keep copy upon copy") {
    std::string inner = "1";
    for (int i = 0; i < 4000; ++i) inner += ", 1";
    std::string open, close;
    for (int i = 0; i < 40; ++i) open += "&a" + std::to_string(i) + " [", close += "]";
    const std::string text = "x: " + open + inner + close + "\n";
    CHECK_THROWS_WITH_AS(LoadText(text, "deep.yaml", {}),
                         doctest::Contains("anchors hold more than 100000 values"), ConfigError);
  }

  TEST_CASE("values survive the way through YAML") {
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"optimizer.lr", "0.30000000000000004"},
        {"optimizer.lr", "1e-310"},
        {"optimizer.lr", "1.7976931348623157e308"},
        {"seed", "9223372036854775807"},
        {"name", "\"010\""},
        {"name", "\"true\""},
        {"name", "\"-5\""},
        {"name", "'null'"},
        {"name", "'a: {b}, \"c\" # d \\ '"},
        {"name", "\"\u00e4\u00f6\""},
        {"output", "\"[x]\""},
        {"device", "{kind: cuda:2, threads: 3}"},
        {"data", "{dataset: mnist, path: 'a b', normalize: {mean: [0.1], std: [0.3]}}"},
        {"data.augment", "{pad: 4, random_crop: true, horizontal_flip: true}"},
        {"model", "{zoo: mlp, hidden: []}"},
        {"model", "{zoo: vgg11, dropout: 0.5, init: {scheme: xavier_uniform, weights: w.st}}"},
        {"model",
         "{layers: [{name: p, kind: max_pool, kernel: [2, 3], stride: [1, 2]}, "
         "{name: s, kind: shortcut, channels: 8, stride: 2}, {name: f, kind: flatten}, "
         "{name: n, kind: batch_norm, eps: 1e-3}, {name: fc, kind: linear, features: 3}]}"},
        {"scaling", "{policy: fixed, scale: 1024}"},
        {"scaling", "{policy: dynamic, min_scale: 1, max_scale: 16777216, growth_factor: 1.5}"},
        {"scaling", "{policy: adaptive, method: fixed, scale: 3, u_min: 6e-8}"},
        {"scaling", "{policy: adaptive, layers: [{match: '*', method: fixed, scale: 2}]}"},
        {"optimizer", "{kind: adamw, beta1: 0.8, no_decay: ['*.bias', 'bn?']}"},
        {"schedule", "{kind: multistep, milestones: [81, 122], gamma: 0.2}"},
        {"schedule", "{kind: poly, power: 2, min_lr: 1e-4, warmup: {epochs: 0.5, lr: 0.01}}"},
        {"train", "{epochs: 3, schedule_on_skip: hold, on_overflow: skip, max_minutes: 1.5}"},
        {"log", "{every: 0, statistics: []}"},
        {"train", "{on_overflow: retry, max_retries: 0}"},
        {"precision", "{format: bf16}"},
        {"precision", "{format: {exponent: 4, mantissa: 4}}"},
        {"precision", "{format: {exponent: 5, mantissa: 10, saturate: true}}"},
        {"precision",
         "{activations: fp16, weights: bf16, gradients: fp8_e5m2, weight_gradients: cb16}"},
        {"precision",
         "{layers: [{match: fc, format: fp32}, {match: 'c*', gradients: {exponent: 6, mantissa: 9, "
         "bias: 40, has_inf: false, has_nan: false}}]}"},
        {"precision", "{rounding: stochastic, overflow: saturate}"},
        {"precision", "{tensor_scaling: delayed}"},
        {"precision",
         "{tensor_scaling: {kind: delayed, history: 16, margin: 1.5, amax: most_recent}}"},
        {"precision", "{tensor_scaling: {kind: delayed, margin: -1, power_of_two: true}}"},
        {"scaling",
         "{policy: dynamic, preset: deepspeed, hysteresis: 3, consecutive_hysteresis: true, "
         "error_at_min_scale: false}"},
        {"scaling", "{policy: dynamic, preset: cerebras, tolerance: 0, min_scale: 0}"},
        {"scaling", "{policy: dynamic, preset: flax, max_scale: 3.4028234663852886e38}"},
        {"scaling", "{policy: dynamic, preset: marian, growth_factor: 1, backoff_factor: 1}"},
        {"scaling", "{policy: adaptive, method: exact_range, headroom_bits: 2.5}"},
        {"scaling", "{policy: adaptive, method: lognormal, reference: true, fan: exact}"},
        {"scaling", "{policy: adaptive, scale_upper_bound: 1e300, accum_upper_bound: 0.5}"},
        {"scaling",
         "{policy: layerwise_dynamic, init_scale: 1024, growth_interval: 5, layers: [{match: fc, "
         "init_scale: 16, growth_factor: 4, backoff_factor: 0.25, min_scale: 2, max_scale: 64}]}"},
        {"scaling",
         "{policy: logmax, reference: true, beta1: 0.9, beta2: 0, overflow_std_dev: 2, log_max: 4, "
         "min_scale: 4, max_scale: 1048576}"},
        {"scaling",
         "{policy: histogram, init_scale: 8, update_period: 1, bin_edge: 1, threshold: 0}"},
        {"model", "{layers: [{name: up, kind: scale}, {name: fc, kind: linear, features: 10}]}"},
    };
    for (const auto& row : rows) {
      const std::string& key = row.first;
      const std::string& value = row.second;
      CAPTURE(key);
      CAPTURE(value);
      const Config config = With(key, value);
      const std::string text = ToYaml(config);
      const Config again = LoadText(text, "again.yaml", {}).config;
      CHECK(ToYaml(again) == text);
      CHECK(again.name == config.name);
      CHECK(again.optimizer.lr == config.optimizer.lr);
      CHECK(text != ToYaml(Read(kSmallest)));
    }
  }

  TEST_CASE("the numbers of `normalize: standard` stand beside it") {
    const std::string data = "{dataset: fashion_mnist, path: x";
    const std::string text = ToYaml(With("data", data + "}"));
    CHECK(text.find("  normalize: standard  # mean [0.2860], std [0.3530]\n") != std::string::npos);
    CHECK(ToYaml(LoadText(text, "again.yaml", {}).config) == text);
    for (const char* other : {", normalize: none}", ", normalize: {mean: [0], std: [1]}}"})
      CHECK(ToYaml(With("data", data + other)).find('#') == std::string::npos);
    CHECK(ToYaml(Read(kSmallest)).find("normalize: standard\n") !=
          std::string::npos);  // made images
  }

  TEST_CASE("only keys of the choice are written") {
    const std::string fixed = ToYaml(With("scaling", "{policy: fixed, scale: 8}"));
    CHECK(fixed.find("scaling:\n  policy: fixed\n  scale: 8\noptimizer:") != std::string::npos);
    const std::string none = ToYaml(Read(kSmallest));
    CHECK(none.find("scaling:\n  policy: none\noptimizer:") != std::string::npos);
    CHECK(none.find("on_overflow") == std::string::npos);
    CHECK(none.find("path:") == std::string::npos);
    CHECK(none.find("shortcut") == std::string::npos);
    CHECK(none.find("milestones") == std::string::npos);
  }
}

}  // namespace ada::config
