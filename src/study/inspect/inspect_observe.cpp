// Statistics of a layer's tensors, in double over all values.
#include <algorithm>
#include <bit>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/ops/rule_inputs.h"
#include "core/error.h"
#include "study/inspect/inspect_layers.h"

namespace ada::study {
namespace {

using Values = std::vector<float>;

TensorMoments MomentsOf(const Values& values) {
  TensorMoments moments;
  backend::cpu::CountRounding(values.data(), static_cast<std::int64_t>(values.size()), 1, kFp32,
                              &moments);
  return moments;
}

// Magnitudes by output: runs of `inner` values belong to output 0, 1 ... and from the start again.
backend::cpu::ChannelMagnitudes ByOutput(const Values& values, std::int64_t outputs,
                                         std::int64_t inner) {
  backend::cpu::ChannelMagnitudes found(outputs);
  const float* x = values.data();
  while (x != values.data() + values.size())
    for (std::size_t k = 0; k < found.max_bits.size(); ++k)
      for (const float* end = x + inner; x != end; ++x) {
        const std::uint32_t bits = std::bit_cast<std::uint32_t>(*x) & 0x7fffffffu;
        found.min_bits[k] = std::min(found.min_bits[k], bits - 1);
        found.max_bits[k] = std::max(found.max_bits[k], bits);
      }
  return found;
}

// Values of a tensor behind dimension `first`.
std::int64_t Inner(const TensorEntry& entry, std::size_t first) {
  std::int64_t product = 1;
  for (std::size_t i = first; i < entry.shape.size(); ++i) product *= entry.shape[i];
  return product;
}

}  // namespace

scaling::Observation Observe(const SafetensorsFile& file, const FileLayer& layer,
                             const NumberFormat& weight_format) {
  scaling::Observation seen;
  const Values dy = file.ReadF32(layer.dy->name);
  seen.dy = MomentsOf(dy);
  if (layer.w == nullptr) {
    backend::cpu::ObserveLogs(dy.data(), static_cast<std::int64_t>(dy.size()), seen);
    return seen;
  }
  Values w = file.ReadF32(layer.w->name);
  for (float& x : w) x = RoundTo(weight_format, x);
  seen.w = MomentsOf(w);
  if (dy.empty() || w.empty()) return seen;
  const bool linear = layer.kind == FileLayer::Kind::kLinear;
  backend::cpu::ObserveProducts(ByOutput(dy, layer.outputs, linear ? 1 : Inner(*layer.dy, 2)),
                                ByOutput(w, layer.outputs, Inner(*layer.w, 1)), seen);
  return seen;
}

scaling::ExponentTail TailOf(const SafetensorsFile& file, const FileLayer& layer,
                             std::int32_t limit) {
  ADA_CHECK(layer.dx != nullptr);
  scaling::ExponentTail tail;
  std::uint32_t largest = 0;
  for (const float x : file.ReadF32(layer.dx->name)) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
    if (bits == 0) continue;
    const auto exponent = static_cast<std::int32_t>(bits >> 23);
    if (exponent < limit) ++tail.bins[exponent];
    ++tail.nonzero;
    largest = bits > largest ? bits : largest;
  }
  tail.largest = std::bit_cast<float>(largest);
  return tail;
}

}  // namespace ada::study
