// Walks the tensors of a backward pass in the order of execution to find where a gradient died.
#include <algorithm>
#include <cstdio>

#include "io/tensor_names.h"
#include "io/text.h"
#include "telemetry/totals.h"

namespace ada::telemetry {
namespace {

constexpr const char* kBranch = "branch";

// What rounding did to the last tensor that had values.
std::string Loss(const TensorTotals& t) {
  const std::string format = t.last_format.empty() ? "its format" : t.last_format;
  const std::string where = format + " at scale " + NineDigits(t.last_scale);
  if (t.left_empty) return "all of its values underflowed in " + where;
  return (t.last_pct > 0 ? Formatted("it lost %.3g %%", t.last_pct) : "it lost nothing") + " in " +
         where + "; what was left became zero in the network itself (dead ReLUs, weights of zero)";
}

// A tensor of the backward pass whose values were not all zero before it was rounded.
bool HasGradient(const TensorTotals& t) { return CarriesS(t.tensor) && !t.came_empty; }

// The last of the backward pass that came with values; null: none did.
const TensorTotals* LastAlive(const std::vector<TensorTotals>& tensors) {
  const auto last = std::find_if(tensors.rbegin(), tensors.rend(), HasGradient);
  return last == tensors.rend() ? nullptr : &*last;
}

}  // namespace

// Tensors come in order of execution, so that the last one with values before a dead one is where
// the gradient died, unless later tensors have values: then it continues on another branch. One
// entry for each layer, even if both dx and dw are zero.
std::vector<LayerWithoutGradient> LayersWithoutGradient(const LayerTotals& layers) {
  std::vector<LayerWithoutGradient> dead;
  const TensorTotals* alive = nullptr;  // the last so far that came with values
  const TensorTotals* const last_alive = LastAlive(layers.tensors());
  for (const TensorTotals& t : layers.tensors()) {
    if (HasGradient(t)) alive = &t;
    if (!t.left_empty || (t.tensor != "dx" && t.tensor != "dw")) continue;
    if (!dead.empty() && dead.back().layer == t.layer) continue;
    LayerWithoutGradient& layer = dead.emplace_back();
    layer.layer = t.layer;
    layer.tensor = t.tensor;
    const TensorTotals* died = t.came_empty ? alive : &t;
    if (t.came_empty && last_alive != nullptr && &t < last_alive) {
      layer.died_at = kBranch;
      layer.why = "while the gradient goes on past it: no target of an output, an input of zeros";
    } else if (died == nullptr) {
      layer.died_at = "loss";
      layer.why = "no tensor had values";
    } else {
      layer.died_at = died->layer + "." + died->tensor;
      layer.died_layer = died->layer, layer.died_tensor = died->tensor;
      layer.by_rounding = died->left_empty;
      layer.why = Loss(*died);
    }
  }
  return dead;
}

std::string CauseText(const LayerWithoutGradient& layer) {
  if (layer.died_at == kBranch) return "a branch without, " + layer.why;
  return "the last tensor with values was " + layer.died_at + ": " + layer.why;
}

std::string NoGradientText(const std::vector<LayerWithoutGradient>& dead, std::size_t names) {
  if (dead.empty()) return "";
  // Branches are told of where there is nothing worse.
  const auto chain = std::find_if(dead.begin(), dead.end(),
                                  [](const auto& layer) { return layer.died_at != kBranch; });
  const LayerWithoutGradient& cause = chain == dead.end() ? dead.front() : *chain;
  const std::string where =
      cause.died_at == kBranch ? "in a branch" : "it died at " + cause.died_at;
  std::string text = "no gradient: " + where + " (" + cause.why + "); " +
                     Counted(static_cast<std::int64_t>(dead.size()), "layer") + " without:";
  for (std::size_t i = 0; i < std::min(names, dead.size()); ++i) text += " " + dead[i].layer;
  if (dead.size() > names) text += " and " + std::to_string(dead.size() - names) + " more";
  return text;
}

}  // namespace ada::telemetry
