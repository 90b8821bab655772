// The short view: a line a tensor, a line a layer.
#include <algorithm>
#include <cmath>
#include <ostream>
#include <utility>

#include "io/text.h"
#include "study/inspect/inspected.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

bool IsGradient(const std::string& name) { return CarriesScale(name) || name.ends_with(".dw"); }

// A gradient that has arrived nowhere.
bool IsAllZero(const TensorLine& line) {
  const TensorStats& s = line.stats;
  return IsGradient(line.entry->name) && s.numel > 0 && s.zeros_before == s.numel;
}

// The sort key of lines: the share of the values other than zero that are no longer
// meaningful, above 100 if there are none; then the share of those that keep fewer digits. A
// value that is lost, overflowed or was not finite from the start is worse than one that keeps
// fewer digits.
std::pair<double, double> Badness(const TensorLine& line) {
  const TensorStats& s = line.stats;
  const std::int64_t nonzero = s.numel - s.zeros_before;
  if (nonzero == 0) return {IsAllZero(line) ? 101 : -1, 0};
  return {PercentOf(s.underflow + s.overflow + s.inf + s.nan, nonzero),
          PercentOf(s.subnormal, nonzero)};
}

// "element_wise" for element_wise_range.
std::string ShortMethod(const std::string& method) {
  constexpr std::string_view kTail = "_range";
  return method.ends_with(kTail) ? method.substr(0, method.size() - kTail.size()) : method;
}

std::string AlphaText(const MethodScale& scale) {
  if (scale.decision.error != scaling::DecisionError::kNone) return "error";
  const double alpha = static_cast<double>(scale.decision.alpha);
  return std::isnan(alpha) ? "-" : BriefScale(alpha);
}

}  // namespace

void PrintTensors(std::vector<TensorLine> tensors, std::ostream& out) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorLine& a, const TensorLine& b) {
    return Badness(a) > Badness(b);
  });
  out << "\ntensors, those that lose most first (lost: of the values other than zero, in %)\n";
  TextTable table(
      {"tensor", "lost", "subnormal", "overflow", "inf, nan", "zeros", "largest", "S", "values"});
  for (const TensorLine& line : tensors) {
    const TensorStats& s = line.stats;
    const std::int64_t nonzero = s.numel - s.zeros_before;
    table.Row({line.entry->name,
               IsAllZero(line) ? "all zero" : PctText(PercentOf(s.underflow, nonzero)),
               PctText(PercentOf(s.subnormal, nonzero)), std::to_string(s.overflow),
               std::to_string(s.inf + s.nan), PctText(PercentOf(s.zeros_before, s.numel)),
               Brief(line.largest / line.scale), BriefScale(line.scale), std::to_string(s.numel)});
  }
  table.Print(out);
}

void PrintLayers(const std::vector<LayerLine>& layers, std::ostream& out) {
  if (layers.empty()) return;
  std::vector<std::string> methods;  // those of any layer, in the order in which they are shown
  for (const LayerLine& line : layers)
    for (const MethodScale& scale : line.scales)
      if (!Contains(methods, scale.method)) methods.push_back(scale.method);
  out << "\nalpha that each method of adaptive would choose for a layer\n";
  std::vector<std::string> titles = {"layer", "kind", "fan", "S"};
  for (const std::string& method : methods) titles.push_back(ShortMethod(method));
  TextTable table(titles, 2);
  for (const LayerLine& line : layers) {
    // Fan and S are the same for all methods of a layer.
    const MethodScale& first = line.scales.front();
    std::vector<std::string> row = {line.layer->name, KindName(*line.layer), Brief(first.fan),
                                    BriefScale(static_cast<double>(first.decision.scale_in))};
    for (const std::string& method : methods) {
      const auto found =
          std::find_if(line.scales.begin(), line.scales.end(),
                       [&](const MethodScale& scale) { return scale.method == method; });
      row.push_back(found == line.scales.end() ? "-" : AlphaText(*found));
    }
    table.Row(std::move(row));
  }
  table.Print(out);
}

}  // namespace ada::study
