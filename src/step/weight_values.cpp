// By the scalar definitions of rounding, with which all kernels agree bit for bit.
#include "step/weight_values.h"

#include <cmath>

#include "number/random.h"
#include "number/table_grid.h"

namespace ada::step {

std::vector<float> HostValues(const Tensor& tensor, backend::Backend& backend) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  backend.Download(values.data(), tensor.data, tensor.bytes());
  return values;
}

std::vector<float> RoundedWeights(const graph::Parameter& weight, const graph::RoundingPoint& point,
                                  bool stochastic, const backend::Pass& pass,
                                  backend::Backend& backend) {
  std::vector<float> values = HostValues(weight.value, backend);
  if (point.format == kFp32) return values;
  const float scale = point.per_tensor_scale != nullptr ? point.per_tensor_scale->scale : 1.0f;
  // The key, the draw and the place of a value choose its random word as in the backends: four
  // words come from each block of Philox.
  const std::uint64_t key = pass.seed ^ StreamId("round:" + point.layer + "." + point.tensor);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i] * scale;
    const std::uint32_t word = stochastic ? Philox(key, pass.draw, i / 4)[i % 4] : 0;
    float rounded = 0;
    if (point.format.table != 0) {
      // The scale may bring a finite value beyond fp32, which does not make it infinite.
      const double scaled = std::isinf(x) ? static_cast<double>(values[i]) * scale : x;
      rounded = RoundByTable(TableGridAt(point.format.table), scaled, point.format.saturate,
                             stochastic, word)
                    .value;
    } else {
      rounded = stochastic ? RoundStochastically(point.format, x, word) : RoundTo(point.format, x);
    }
    values[i] = rounded / scale;
  }
  return values;
}

const graph::Parameter* WeightOf(const graph::Graph& graph, const std::string& layer) {
  for (const graph::Parameter& p : graph.parameters())
    if (p.part == "weight" && (p.layer == layer || Contains(p.tied_layers, layer))) return &p;
  return nullptr;
}

const graph::RoundingPoint* CopyOf(const graph::Graph& graph, const graph::Parameter& weight) {
  for (const graph::RoundingPoint& point : graph.roundings())
    if (point.tensor == "w" && point.layer == weight.layer) return &point;
  return nullptr;
}

}  // namespace ada::step
