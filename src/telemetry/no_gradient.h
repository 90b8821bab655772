// Layers that no gradient reaches, or whose weights get none: all values of their dx or dw are
// zero. Such a layer does not learn, and shares of what underflowed say nothing of it: nothing
// arrives that could be lost.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/totals.h"

namespace ada::telemetry {

struct LayerWithoutGradient {
  std::string layer,
      tensor;  // of which all values are zero: dx, or dw where dx has some or is none
  // The last tensor before it that still had values; else "loss". "branch": tensors after it have
  // values: the gradient goes on past it.
  std::string died_at;
  // Whether those values were lost there by rounding; else the network itself made zeros of them.
  bool by_rounding = false;
  std::string why;  // in words: what died_at lost, or what may leave a branch without
};

// As of the last logged step, in the order of the backward pass. `layers` has its tensors in the
// order of execution, as the logs have them.
std::vector<LayerWithoutGradient> LayersWithoutGradient(const LayerTotals& layers);

// The cause for one layer, for the message of its event.
std::string CauseText(const LayerWithoutGradient& layer);

// One line: where the gradient died and why, and which layers have none (at most `names` of them).
std::string NoGradientText(const std::vector<LayerWithoutGradient>& dead, std::size_t names);

}  // namespace ada::telemetry
