// Depthwise convolutions, and those of few channels a group (IsNarrow), as the kernels
// (matmul/kernels/direct/depthwise.cpp) get a row of the output. Lane c of the output sees the
// channels of its group one after the other: the input lies in memory in planes, in fp32, and lane
// c of plane k holds channel k of the group of c. A tap and a plane are then a product lane by
// lane.
//
//   2 channels a group   x        a b c d e f ..
//                        plane 0  a a c c e e ..
//                        plane 1  b b d d f f ..
//
// Rows of the input, dy and weights lie in blocks of 16 channels, zeros after the last one.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// What a tap adds in one plane: in[column * in_step] * weight, channel by channel. The pointers are
// those of the first block of channels.
struct DepthwiseTap {
  const float* in = nullptr;  // of the first column
  const float* weight = nullptr;
};

// `columns` pixels of a row of the output, `channels` channels of each.
struct DepthwiseRowArgs {
  const DepthwiseTap* taps = nullptr;
  int tap_count = 0, columns = 0, in_step = 1;
  int channels = 0;
  std::int64_t out_step = 0;                    // values of `out` from one of them to the next
  std::int64_t in_block = 0, weight_block = 0;  // values from one block of channels to the next
  const float* bias = nullptr;                  // [channels rounded up to 16]; null: none
  float factor = 1;                             // out = round(sum * factor + bias)
  TensorSpan out;                               // the first pixel; fp32: stored as they are
  std::uint32_t* largest = nullptr;             // bits of the largest magnitude, merged into
};

// gradients[tap][channel] += sum over the columns of dy times what the tap sees.
struct DepthwiseGradientArgs {
  const DepthwiseTap* taps = nullptr;  // `in` alone
  int tap_count = 0, columns = 0, in_step = 1;
  int channels = 0;
  std::int64_t in_block = 0;
  const float* dy = nullptr;   // [blocks][columns][16]
  float* gradients = nullptr;  // [blocks][taps][16]
  float* bias = nullptr;       // [channels rounded up to 16] += sum of dy; null: none
};

// `pixels` pixels of `channels` channels each, from value `first` on, in fp32.
struct DepthwiseWidenArgs {
  TensorSpan in;
  std::int64_t first = 0;
  int pixels = 0, channels = 0;
  int planes = 1;                     // channels of a group, or 1: as they are
  float* out = nullptr;               // [pixels][16] of the first block's first plane
  std::int64_t plane = 0, block = 0;  // values from one plane, or block of channels, to the next
};

}  // namespace ada::backend::cpu
