#include "telemetry/no_gradient.h"

#include <algorithm>
#include <cstdio>

#include "core/tensor_names.h"
#include "core/text.h"

namespace ada::telemetry {
namespace {

// What rounding did to the last tensor that had values.
std::string Loss(const TensorTotals& t) {
  const std::string format = t.last_format.empty() ? "its format" : t.last_format;
  const std::string where = format + " at scale " + NineDigits(t.last_scale);
  if (t.left_empty) return "all of its values underflowed in " + where;
  return Formatted("it lost %.3g %%", t.last_pct) + " in " + where +
         "; what was left became zero in the network itself (dead ReLUs, weights of zero)";
}

}  // namespace

std::vector<LayerWithoutGradient> LayersWithoutGradient(const LayerTotals& layers) {
  std::vector<LayerWithoutGradient> dead;
  const TensorTotals* alive = nullptr;  // the last of the backward pass that came with values
  for (const TensorTotals& t : layers.tensors()) {
    if (CarriesS(t.tensor) && !t.came_empty) alive = &t;
    if (!t.left_empty || (t.tensor != "dx" && t.tensor != "dw")) continue;
    if (!dead.empty() && dead.back().layer == t.layer) continue;
    const TensorTotals* last = t.came_empty ? alive : &t;
    LayerWithoutGradient& layer = dead.emplace_back();
    layer.layer = t.layer;
    layer.tensor = t.tensor;
    layer.died_at = last == nullptr ? "loss" : last->layer + "." + last->tensor;
    layer.by_rounding = last != nullptr && last->left_empty;
    layer.why = last == nullptr ? "no tensor had values" : Loss(*last);
  }
  return dead;
}

std::string NoGradientText(const std::vector<LayerWithoutGradient>& dead, std::size_t names,
                           std::size_t width) {
  if (dead.empty()) return "";
  std::string text = "no gradient: it died at " + dead.front().died_at + " (" + dead.front().why +
                     "); " + Counted(static_cast<std::int64_t>(dead.size()), "layer") + " without:";
  std::size_t line = text.size();
  const auto add = [&](const std::string& word) {
    if (line + 1 + word.size() > width) {
      text += "\n ";
      line = 1;
    }
    text += " " + word;
    line += 1 + word.size();
  };
  for (std::size_t i = 0; i < std::min(names, dead.size()); ++i) add(dead[i].layer);
  if (dead.size() > names) add("and " + std::to_string(dead.size() - names) + " more");
  return text;
}

}  // namespace ada::telemetry
