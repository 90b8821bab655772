// The history of largest magnitudes, the bound of a predicted scale, and their exact texts.
#include "scaling/rules/tensor_scale.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "error.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {

namespace {

// The largest value of the history; NaN if it contains one.
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

// newest: the last value of the history.
void TakeScale(const TensorScaleHistory& history, float newest, TensorScaler& scaler) {
  const TensorScaleRule& rule = history.rule;
  const float seen = rule.amax == Amax::kMostRecent ? newest : LargestOf(history.amax);
  const float scale = DelayedScale(rule, seen, scaler.scale);
  if (std::isfinite(scale) && scale > 0) scaler.scale = scale;
}

}  // namespace

// Until the ring is full it grows at its end, where `next` also points.
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
  TakeScale(history, amax, scaler);
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

void AdoptTensorScale(const StateMap& state, const std::string& tensor, TensorScaleHistory& history,
                      TensorScaler& scaler) {
  ExpectKeys(state, "tensor " + tensor, {"scale", "next", "amax"});
  // A ring that is not full starts with its oldest magnitude; in a full one `next` is the oldest.
  TensorScaleHistory saved = history;
  const auto size = static_cast<std::int32_t>(ReadHistory(state, tensor).size());
  saved.rule.history = ReadInteger(state, "next") == size ? size + 1 : size;
  LoadTensorScale(state, tensor, saved, scaler);
  if (size > 0)
    std::rotate(saved.amax.begin(), saved.amax.begin() + saved.next % size, saved.amax.end());
  const std::int32_t kept = std::min(size, history.rule.history);
  history.amax.assign(saved.amax.end() - kept, saved.amax.end());
  history.next = kept % history.rule.history;
  if (kept > 0) TakeScale(history, history.amax.back(), scaler);
}

void MeasureScale(PredictedScale& predicted, float amax, TensorScaler& scaler) {
  predicted.measured = amax, predicted.moved = 0, predicted.steps = 0;
  scaler.scale = CurrentScale(predicted.rule, amax);
}

void PredictScale(PredictedScale& predicted, double lr, TensorScaler& scaler) {
  predicted.moved += lr;
  ++predicted.steps;
  scaler.scale = CurrentScale(predicted.rule, predicted.bound());
}

StateMap SavePredictedScale(const PredictedScale& predicted, const TensorScaler& scaler) {
  return {{"scale", ToHex(scaler.scale)},
          {"measured", ToHex(predicted.measured)},
          {"moved", ToHex(predicted.moved)},
          {"steps", std::to_string(predicted.steps)}};
}

void LoadPredictedScale(const StateMap& state, const std::string& tensor, PredictedScale& predicted,
                        TensorScaler& scaler) {
  ExpectKeys(state, "tensor " + tensor, {"scale", "measured", "moved", "steps"});
  const auto read = [&](const char* key) {
    const double value = ReadHex(state, key);
    if (value < 0)
      throw DataError("scale of tensor " + tensor + ": " + key + " is " + state.at(key) +
                      ", expected no negative number; the checkpoint is damaged: resume from an "
                      "older one");
    return value;
  };
  scaler.scale = static_cast<float>(read("scale"));
  predicted.measured = static_cast<float>(read("measured"));
  predicted.moved = read("moved");
  predicted.steps = ReadInteger(state, "steps");
}

bool IsPredictedScale(const StateMap& state) { return state.count("measured") > 0; }

}  // namespace ada::scaling
