// Twins: forks whose weights are moved by what a rounding may move them, to tell what chance does.
#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "train/checkpoint/weight_values.h"
#include "train/fork/parts.h"

namespace ada::train {
namespace {

// The distance between the numbers of `format` around x.
// Below the smallest normal number the distance no longer shrinks: subnormal numbers are evenly
// spaced.
double UnitAround(const NumberFormat& format, double x) {
  const int lowest = std::ilogb(format.smallest_normal());
  const int exponent = x == 0 ? lowest : std::max(std::ilogb(std::fabs(x)), lowest);
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

// A neighbor of x in `format`, the nearer one the more likely: a move that is less than a unit is
// not swallowed.
float RoundedByChance(const NumberFormat& format, double x, float chance) {
  const double unit = UnitAround(format, x), below = std::floor(x / unit) * unit;
  const double rounded = (x - below) / unit > static_cast<double>(chance) ? below + unit : below;
  return static_cast<float>(std::clamp(rounded, -format.largest(), format.largest()));
}

}  // namespace

// Each parameter has a random stream by its name, so that the numbers of one do not depend on what
// others the network has.
void MoveWeights(const ForkSpec& spec, graph::Graph& graph, backend::Backend& backend) {
  const NumberFormat& masters = spec.precision.masters.format;
  const std::set<std::string> layers = NamesOf(graph);
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!parameter.gradient) continue;
    const auto unit = spec.units.find(LayerOf(parameter.name, layers));
    const NumberFormat format = unit == spec.units.end() ? kFp32 : unit->second;
    std::vector<float> values = HostValues(parameter.value, backend);
    RandomStream random(spec.twin, StreamId("twin:" + parameter.name));
    for (float& value : values) {
      const auto wide = static_cast<double>(value);
      const double step = std::max(UnitAround(format, wide), UnitAround(masters, wide));
      const double moved = wide + (static_cast<double>(random.Uniform()) - 0.5) * step;
      value = RoundedByChance(masters, moved, random.Uniform());
    }
    backend.Upload(parameter.value.data, values.data(), parameter.value.bytes());
  }
}

}  // namespace ada::train
