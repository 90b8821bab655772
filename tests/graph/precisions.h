// How the graphs of these tests round.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "number/random.h"

namespace ada::graph::test {

inline NumberFormat Saturating(NumberFormat format) {
  format.saturate = true;
  return format;
}

inline Precision Uniform(const NumberFormat& format) {
  Precision precision;
  precision.base = {format, format, format, kFp32};
  return precision;
}

// Every role of every layer has its own format, chosen by name: all format boundaries at once.
// Narrow formats saturate, so that deep networks stay finite.
inline Precision Patchwork() {
  Precision precision = Uniform(kFp16);
  precision.formats_of = [](const std::string& layer) {
    static const std::vector<NumberFormat> formats = {
        kFp16, kFp32, kBf16, Saturating(kFp8E4M3), kCb16, Saturating(kFp8E5M2)};
    const auto pick = [&](const char* role) {
      return formats[(StreamId(layer + role) >> 20) % formats.size()];
    };
    return LayerFormats{pick(".activations"), pick(".weights"), pick(".gradients"),
                        pick(".weight_gradients")};
  };
  return precision;
}

// The hybrid recipe of FP8 with delayed scaling everywhere, before an fp32 head. It saturates: a
// value may be larger than all those that its scale was made from.
inline Precision HybridFp8() {
  Precision precision;
  const NumberFormat forward = Saturating(kFp8E4M3), backward = Saturating(kFp8E5M2);
  precision.base = {forward, forward, backward, kFp32};
  precision.formats_of = [base = precision.base](const std::string& layer) {
    return layer == "fc" ? LayerFormats{kFp32, kFp32, kFp32, kFp32} : base;
  };
  precision.scaled_forward = precision.scaled_backward = true;
  precision.tensor_scale.history = 4;
  return precision;
}

}  // namespace ada::graph::test
