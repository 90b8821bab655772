// Moves the bound, and its exact text.
#include "scaling/rules/predicted_scale.h"

#include <cmath>

#include "error.h"

namespace ada::scaling {

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
