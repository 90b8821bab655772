// Moves mu, and gives the scale that it is a factor of.
#include "scaling/rules/sum_scale.h"

#include <cmath>

#include "error.h"

namespace ada::scaling {
namespace {

bool IsUsable(float scale) { return std::isnormal(scale) && std::isfinite(1.0f / scale); }

}  // namespace

float FirstMu(int processes) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(processes)));
}

float NextMu(const SumScaleRule& rule, float mu, std::int64_t saturated, std::int64_t values) {
  if (values == 0) return mu;
  const double share = static_cast<double>(saturated) / static_cast<double>(values);
  const double growth = std::exp2(1 / static_cast<double>(rule.growth_interval));
  const float next = share > rule.saturation_limit ? mu / 2 : mu * static_cast<float>(growth);
  return IsUsable(next) ? next : mu;
}

float ScaleOfSum(double format_max, float amax, float mu, float current) {
  TensorScaleRule rule;
  rule.format_max = format_max, rule.power_of_two = true;
  const float scale = DelayedScale(rule, amax, 0) * mu;
  return IsUsable(scale) ? scale : current;
}

StateMap SaveSumScale(const SumScale& of) {
  return {{"mu", ToHex(of.mu)}, {"scale", ToHex(of.scale)}};
}

SumScale LoadSumScale(const StateMap& state, const std::string& gradient) {
  ExpectKeys(state, "sum of gradient " + gradient, {"mu", "scale"});
  const auto read = [&](const char* key) {
    const double value = ReadHex(state, key);
    if (!IsUsable(static_cast<float>(value)) || static_cast<float>(value) != value || value < 0)
      throw DataError("sum of gradient " + gradient + ": " + key + " is " + state.at(key) +
                      ", expected a positive fp32; the checkpoint is damaged: resume from an older "
                      "one");
    return static_cast<float>(value);
  };
  return {read("mu"), read("scale")};
}

}  // namespace ada::scaling
