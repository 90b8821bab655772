// The scale of summed gradients (fp8_lm) and the predicted scale of weights: their formulas, ends
// and states.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "error.h"
#include "scaling/rules/sum_scale.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::scaling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST_SUITE("cpu") {
  TEST_CASE("mu halves above the limit, and doubles in growth_interval steps") {
    SumScaleRule rule;
    rule.saturation_limit = 0.25, rule.growth_interval = 4;
    CHECK(FirstMu(1) == 1);
    CHECK(FirstMu(16) == 0.25f);
    CHECK(NextMu(rule, 1, 26, 100) == 0.5f);
    CHECK(NextMu(rule, 1, 25, 100) == static_cast<float>(std::exp2(0.25)));  // not above
    CHECK(NextMu(rule, 1, 0, 0) == 1);
    float mu = 3;
    for (int i = 0; i < 4; ++i) mu = NextMu(rule, mu, 0, 100);
    CHECK(mu == doctest::Approx(6).epsilon(1e-6));
    const float least = std::numeric_limits<float>::min(), most = 0x1.8p127f;
    CHECK(NextMu(rule, least, 100, 100) == least);
    rule.growth_interval = 1;
    CHECK(NextMu(rule, most, 0, 100) == most);
  }

  TEST_CASE("the scale of a sum is mu times a power of two") {
    CHECK(ScaleOfSum(448, 448, 1, 7) == 1);
    CHECK(ScaleOfSum(448, 225, 1, 7) == 1);
    CHECK(ScaleOfSum(448, 224, 1, 7) == 2);
    CHECK(ScaleOfSum(448, 1, 0.75f, 7) == 192);
    for (const float amax : {0.0f, kInf, NAN}) CHECK(ScaleOfSum(448, amax, 1, 7) == 7);
    CHECK(ScaleOfSum(448, 1e-45f, 1, 7) == 7);  // no finite scale
  }

  TEST_CASE("a predicted scale is that of the measured magnitude and the rates since") {
    PredictedScale predicted;
    predicted.rule.format_max = 448, predicted.interval = 2;
    TensorScaler scaler;
    CHECK(predicted.wants_measure());
    MeasureScale(predicted, 0.5f, scaler);
    CHECK(scaler.scale == 896);
    CHECK_FALSE(predicted.wants_measure());
    PredictScale(predicted, 0.25, scaler);
    CHECK(scaler.scale == 448.0f / 0.75f);
    CHECK_FALSE(predicted.wants_measure());

    PredictedScale other;
    other.rule = predicted.rule, other.interval = 2;
    TensorScaler read;
    LoadPredictedScale(SavePredictedScale(predicted, scaler), "fc.forward.w", other, read);
    for (const double lr : {0.0, 0.25}) {
      PredictScale(predicted, lr, scaler), PredictScale(other, lr, read);
      CHECK(read.scale == scaler.scale);
    }
    CHECK(other.wants_measure());
    MeasureScale(other, 0, read);
    CHECK(read.scale == 1);
  }

  TEST_CASE("damaged states are refused") {
    const SumScale sum = LoadSumScale(SaveSumScale({0.3f, 1e-20f}), "fc.weight");
    CHECK(sum.mu == 0.3f);
    CHECK(sum.scale == 1e-20f);
    for (const char* mu : {"-0x1p+0", "0x0p+0", "inf", "nan", "0x1.0000000001p+0"})
      CHECK_THROWS_AS(LoadSumScale({{"mu", mu}, {"scale", "0x1p+0"}}, "fc.weight"), DataError);
    CHECK_THROWS_AS(LoadSumScale({{"mu", "0x1p+0"}}, "fc.weight"), DataError);
    PredictedScale predicted;
    TensorScaler scaler;
    CHECK_THROWS_AS(LoadPredictedScale({{"scale", "0x1p+0"}}, "fc.forward.w", predicted, scaler),
                    DataError);
  }
}  // TEST_SUITE

}  // namespace
}  // namespace ada::scaling
