// Convolutions in which each output channel sees one input channel of its own: what a row of the
// output takes, as the kernels (kernels/direct/depthwise.cpp) get it. Rows of the input lie in
// memory in fp32, their channels rounded up to whole records of 16, with zeros beside them.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// What a tap adds: in[column * in_step] * weight, channel by channel.
struct DepthwiseTap {
  const float* in = nullptr;      // of the first column
  const float* weight = nullptr;  // [channels]
};

// `columns` pixels of a row of the output, every out_step-th.
struct DepthwiseRowArgs {
  const DepthwiseTap* taps = nullptr;
  int tap_count = 0, columns = 0, in_step = 1, out_step = 1;
  int channels = 0;
  const float* bias = nullptr;       // [channels rounded up to 16]; null: none
  float factor = 1;                  // out = round(sum * factor + bias)
  TensorSpan out;                    // the first pixel; fp32: stored as they are
  std::uint32_t* largest = nullptr;  // bits of the largest magnitude, merged into
};

// gradients[tap][channel] += sum over the columns of dy times what the tap sees.
struct DepthwiseGradientArgs {
  const DepthwiseTap* taps = nullptr;  // `in` alone
  int tap_count = 0, columns = 0, in_step = 1;
  int channels = 0;
  const float* dy = nullptr;   // [columns][channels rounded up to 16]
  float* gradients = nullptr;  // [taps][channels rounded up to 16]
  float* bias = nullptr;       // += sum of dy; null: none
};

// `pixels` pixels of `channels` channels each, from value `first` on, in fp32.
struct DepthwiseWidenArgs {
  TensorSpan in;
  std::int64_t first = 0;
  int pixels = 0, channels = 0;
  float* out = nullptr;  // [pixels][channels rounded up to 16], zeros behind
};

}  // namespace ada::backend::cpu
