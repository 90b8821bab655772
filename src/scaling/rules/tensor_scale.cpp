// The history of largest magnitudes and its exact text.
#include "scaling/rules/tensor_scale.h"

#include <cmath>
#include <sstream>

#include "core/error.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {
namespace {

// The largest of the history; NaN where it holds one.
float LargestOf(const std::vector<float>& history) {
  float largest = 0;
  for (const float amax : history) {
    if (!(amax <= largest)) largest = amax;
    if (std::isnan(amax)) break;
  }
  return largest;
}

[[noreturn]] void BadState(const std::string& tensor, const std::string& what) {
  throw DataError("scale of tensor " + tensor + ": " + what +
                  "; the checkpoint is damaged or from a run with other settings: resume from an "
                  "older one");
}

std::vector<float> ReadHistory(const StateMap& state, const std::string& tensor) {
  std::istringstream words(state.at("amax"));
  std::vector<float> history;
  for (std::string word; words >> word;) {
    const double amax = ReadHex({{"amax", word}}, "amax");
    if (amax < 0 || (std::isfinite(amax) && static_cast<float>(amax) != amax)) {
      BadState(tensor, "'" + word + "' is no largest magnitude");
    }
    history.push_back(static_cast<float>(amax));
  }
  return history;
}

}  // namespace

void UpdateTensorScale(TensorScaleHistory& history, float amax, TensorScaler& scaler) {
  const TensorScaleRule& rule = history.rule;
  ADA_CHECK(rule.history >= 1);
  if (!rule.reference && !std::isfinite(amax)) return;
  if (static_cast<std::int32_t>(history.amax.size()) < rule.history) {
    history.amax.push_back(amax);
  } else {
    history.amax[static_cast<std::size_t>(history.next)] = amax;
  }
  history.next = (history.next + 1) % rule.history;
  const float seen = rule.amax == Amax::kMostRecent ? amax : LargestOf(history.amax);
  const float scale = DelayedScale(rule, seen, scaler.scale);
  if (std::isfinite(scale) && scale > 0) scaler.scale = scale;
}

StateMap SaveTensorScale(const TensorScaleHistory& history, const TensorScaler& scaler) {
  std::string amax;
  for (const float value : history.amax) amax += (amax.empty() ? "" : " ") + ToHex(value);
  return {{"scale", ToHex(scaler.scale)},
          {"next", std::to_string(history.next)},
          {"amax", std::move(amax)}};
}

void LoadTensorScale(const StateMap& state, const std::string& tensor, TensorScaleHistory& history,
                     TensorScaler& scaler) {
  ExpectKeys(state, "tensor " + tensor, {"scale", "next", "amax"});
  const double scale = ReadHex(state, "scale");
  if (!(scale > 0) || !std::isfinite(scale) || static_cast<float>(scale) != scale) {
    BadState(tensor, "scale is " + state.at("scale") + ", expected a positive fp32");
  }
  std::vector<float> amax = ReadHistory(state, tensor);
  const auto size = static_cast<std::int64_t>(amax.size());
  const std::int64_t next = ReadInteger(state, "next"), capacity = history.rule.history;
  const bool fits = size < capacity ? next == size : size == capacity && next >= 0 && next < size;
  if (!fits) {
    BadState(tensor, std::to_string(size) + " magnitudes, the next at " + std::to_string(next) +
                         ", do not fit a history of " + std::to_string(capacity));
  }
  scaler.scale = static_cast<float>(scale);
  history.amax = std::move(amax);
  history.next = static_cast<std::int32_t>(next);
}

}  // namespace ada::scaling
