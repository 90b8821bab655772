// From the `precision` section to formats by layer and role, and to what holds for the whole graph.
#include "graph/network/precision.h"

#include <doctest/doctest.h>

#include "graph/precisions.h"

namespace ada::graph::test {
namespace {

using config::LayerPrecisionConfig;
using config::PrecisionConfig;

LayerPrecisionConfig Entry(const std::string& match, std::optional<NumberFormat> format,
                           std::optional<NumberFormat> gradients = {},
                           std::optional<NumberFormat> weight_gradients = {}) {
  LayerPrecisionConfig entry;
  entry.match = match;
  entry.format = format;
  entry.gradients = gradients;
  entry.weight_gradients = weight_gradients;
  return entry;
}

void CheckFormats(const LayerFormats& formats, const NumberFormat& activations,
                  const NumberFormat& weights, const NumberFormat& gradients,
                  const NumberFormat& weight_gradients) {
  CHECK(formats.activations == activations);
  CHECK(formats.weights == weights);
  CHECK(formats.gradients == gradients);
  CHECK(formats.weight_gradients == weight_gradients);
}

TEST_SUITE("cpu") {
  TEST_CASE("`format` gives three roles, a role's key beats it, dw is fp32 unless set") {
    PrecisionConfig precision;
    CheckFormats(FormatsOf(precision, "a"), kFp32, kFp32, kFp32, kFp32);
    precision.format = kFp16;
    CheckFormats(FormatsOf(precision, "a"), kFp16, kFp16, kFp16, kFp32);
    precision.weights = kBf16;
    precision.gradients = kFp8E5M2;
    CheckFormats(FormatsOf(precision, "a"), kFp16, kBf16, kFp8E5M2, kFp32);
    precision.weight_gradients = kFp16;
    precision.activations = kFp8E4M3;
    CheckFormats(FormatsOf(precision, "a"), kFp8E4M3, kBf16, kFp8E5M2, kFp16);
  }

  TEST_CASE("entries that match apply one after the other") {
    PrecisionConfig precision;
    precision.format = kFp16;
    precision.gradients = kFp8E5M2;
    precision.layers = {Entry("stage1.*", kBf16), Entry("*.conv?", {}, kCb16, kFp16),
                        Entry("stage1.conv2", kFp32, kBf16), Entry("head", kFp32)};
    // No entry: as for all.
    CheckFormats(FormatsOf(precision, "bn"), kFp16, kFp16, kFp8E5M2, kFp32);
    // An entry's format replaces the role keys that stood before it, but never that of dw.
    CheckFormats(FormatsOf(precision, "head"), kFp32, kFp32, kFp32, kFp32);
    CheckFormats(FormatsOf(precision, "stage1.bn1"), kBf16, kBf16, kBf16, kFp32);
    // Key by key: the second entry names gradients alone.
    CheckFormats(FormatsOf(precision, "stage1.conv1"), kBf16, kBf16, kCb16, kFp16);
    CheckFormats(FormatsOf(precision, "stage2.conv1"), kFp16, kFp16, kCb16, kFp16);
    // The third comes last, and its role key beats its own format.
    CheckFormats(FormatsOf(precision, "stage1.conv2"), kFp32, kFp32, kBf16, kFp16);
    // The order decides, not how narrow a glob is.
    std::swap(precision.layers[0], precision.layers[2]);
    CheckFormats(FormatsOf(precision, "stage1.conv2"), kBf16, kBf16, kBf16, kFp16);
  }

  TEST_CASE("saturate: every format but fp32") {
    PrecisionConfig precision;
    precision.format = kFp8E4M3;
    precision.gradients = kFp8E5M2;
    precision.overflow = config::OverflowKind::kSaturate;
    precision.layers = {Entry("fc", kFp32, {}, kFp16)};
    CheckFormats(FormatsOf(precision, "a"), Saturating(kFp8E4M3), Saturating(kFp8E4M3),
                 Saturating(kFp8E5M2), kFp32);
    CheckFormats(FormatsOf(precision, "fc"), kFp32, kFp32, kFp32, Saturating(kFp16));
  }

  TEST_CASE("the whole graph: base, layers, rounding") {
    PrecisionConfig precision;
    precision.format = kFp16;
    precision.layers = {Entry("*", kBf16)};
    precision.overflow = config::OverflowKind::kSaturate;
    Precision resolved = ResolvePrecision(precision, false);
    const NumberFormat fp16 = Saturating(kFp16), bf16 = Saturating(kBf16);
    CheckFormats(resolved.base, fp16, fp16, fp16, kFp32);
    precision.layers.clear();  // a copy was kept
    CheckFormats(resolved.formats_of("a"), bf16, bf16, bf16, kFp32);
    CHECK_FALSE(resolved.stochastic);
    CHECK_FALSE(resolved.scaled_forward);
    CHECK_FALSE(resolved.scaled_backward);
    precision.rounding = config::RoundingKind::kStochastic;
    CHECK(ResolvePrecision(precision, true).stochastic);
  }

  TEST_CASE("delayed scaling: gradients only where no policy owns their scales") {
    PrecisionConfig precision;
    config::TensorScalingConfig& delayed = precision.tensor_scaling;
    delayed.kind = config::TensorScalingConfig::Kind::kDelayed;
    delayed.history = 16, delayed.margin = 2;
    delayed.amax = scaling::Amax::kMostRecent, delayed.power_of_two = true;
    for (const bool owned : {false, true}) {
      const Precision resolved = ResolvePrecision(precision, owned);
      CHECK(resolved.scaled_forward);
      CHECK(resolved.scaled_backward == !owned);
      CHECK(resolved.tensor_scale.history == 16);
      CHECK(resolved.tensor_scale.margin == 2);
      CHECK(resolved.tensor_scale.amax == scaling::Amax::kMostRecent);
      CHECK(resolved.tensor_scale.power_of_two);
    }
    delayed.amax = scaling::Amax::kMax;
    CHECK(ResolvePrecision(precision, false).tensor_scale.amax == scaling::Amax::kMax);
  }
}

}  // namespace
}  // namespace ada::graph::test
