// Changes of formats that `advise` writes: a configuration takes them, presets included.
#include <doctest/doctest.h>

#include <array>
#include <string>
#include <vector>

#include "config/load.h"
#include "study/advise/run_record.h"

namespace ada::study {
namespace {

constexpr char kRun[] = R"(
name: r
data: {dataset: synthetic}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3}
    - {name: relu1, kind: relu}
    - {name: fc, kind: linear, features: 10}
)";

// What a run of this precision becomes with the advice, read as --with reads it.
config::PrecisionConfig Changed(const std::string& precision, const std::string& layer,
                                const std::string& tensor, const NumberFormat& format) {
  const std::string text = kRun + ("precision: " + precision);
  const config::Config run = config::LoadText(text, "run", {}).config;
  config::Overrides overrides;
  for (const auto& [key, value] : FormatAdvice(run, layer, tensor, format).keys)
    overrides.emplace_back("precision." + key, value);
  return config::LoadText(text, "run", overrides).config.precision;
}

TEST_SUITE("cpu") {
  TEST_CASE("a role's own key says it, unless an entry of precision.layers has set it") {
    CHECK(Changed("{format: fp16}", "fc", "dx", kBf16).gradients == kBf16);
    const auto set =
        Changed("{format: fp16, layers: [{match: fc, gradients: fp8_e4m3}]}", "loss", "dx", kBf16);
    REQUIRE(set.layers.size() == 2);
    CHECK(set.layers[1].match == "fc");
    CHECK(set.layers[1].gradients == kBf16);
  }

  TEST_CASE("under a preset an entry for the layer says it, and the preset stays") {
    const std::string preset = "{format: fp16, preset: autocast}";
    const std::vector<std::array<const char*, 3>> cases = {
        {"fc", "dx", "conv1"}, {"fc", "w", "fc"}, {"conv1", "y", "conv1"}};
    for (const auto& [layer, tensor, owner] : cases) {
      CAPTURE(layer);
      const config::PrecisionConfig changed = Changed(preset, layer, tensor, kBf16);
      CHECK(changed.preset == config::PrecisionPreset::kAutocast);
      REQUIRE(changed.layers.size() == 1);
      CHECK(changed.layers[0].match == owner);
    }
    CHECK(Changed(preset, "fc", "dw", kBf16).weight_gradients == kBf16);
  }

  TEST_CASE("the input is reached by its own name, where an entry has to say it") {
    CHECK(Changed("{format: fp16}", "input", "y", kBf16).activations == kBf16);
    for (const char* precision :
         {"{format: fp16, preset: autocast}", "{layers: [{match: '*', activations: fp16}]}"}) {
      CAPTURE(precision);
      const auto changed = Changed(precision, "input", "y", kBf16);
      REQUIRE(!changed.layers.empty());
      CHECK(changed.layers.back().match == "input");
      CHECK(changed.layers.back().activations == kBf16);
    }
  }
}

}  // namespace
}  // namespace ada::study
