// The scale of a weight without its largest magnitude: MOSS (arXiv 2511.05811, "automatic
// scaling"). An update of AdamW moves a weight by at most the learning rate, so
//
//   max|W_t| <= max|W_0| + the sum of the learning rates since
//
// and the scale is CurrentScale of that bound. The magnitude is measured anew at an interval.
#pragma once
#include <cstdint>
#include <string>

#include "scaling/rules/state_text.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::scaling {

struct PredictedScale {
  TensorScaleRule rule;
  std::int64_t interval = 500;  // steps from one measurement to the next
  // Since the last measurement, which gave `measured`; NaN: there was none.
  float measured = __builtin_nanf("");
  double moved = 0;  // the learning rates, added up
  std::int64_t steps = 0;

  bool wants_measure() const { return measured != measured || steps >= interval; }
  float bound() const { return static_cast<float>(static_cast<double>(measured) + moved); }
};
void MeasureScale(PredictedScale& predicted, float amax, TensorScaler& scaler);
// After a step whose update had the learning rate `lr`; 0: there was none.
void PredictScale(PredictedScale& predicted, double lr, TensorScaler& scaler);

StateMap SavePredictedScale(const PredictedScale& predicted, const TensorScaler& scaler);
// Throws DataError naming `tensor` ("fc.forward.w") where keys or values do not fit.
void LoadPredictedScale(const StateMap& state, const std::string& tensor, PredictedScale& predicted,
                        TensorScaler& scaler);
bool IsPredictedScale(const StateMap& state);

}  // namespace ada::scaling
