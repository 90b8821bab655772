// From PyTorch's order of weights to the tiles of a convolution; see tile_convolution.h.
#include <algorithm>

#include "backend/cpu/products/tile_convolution.h"

namespace ada::backend::cpu {

std::vector<TileConvolution::StepWeight> TileConvolution::StepWeights() const {
  std::vector<StepWeight> weights;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : parts_[0].taps) weights.push_back({block * frame_.block, tap.weight});
  return weights;
}

std::int64_t TileConvolution::WeightOf(std::int64_t i) const {
  return i % weight_channels_ * weight_taps_ + i / weight_channels_;
}

// One tile: input channels of `block`, 16 output channels from `out` on.
void TileConvolution::PackTile(const float* plain, int out, int block, const Tap& tap,
                               std::byte* tile) const {
  const std::int64_t out_step = weight_channels_ * weight_taps_;
  const int in = block * frame_.block, channels = static_cast<int>(in_.c) * frame_.window;
  PackWeightsArgs a;
  a.columns = std::min(16, static_cast<int>(out_.c) - out);
  a.k = std::min(frame_.block, channels - in);
  a.twice = frame_.block == 16;
  a.parts = w_parts_;
  a.tiles = tile;
  a.plain = plain + tap.weight;
  // What goes into a data gradient are output channels of the layer.
  a.column_step = data_gradient_ ? weight_taps_ : out_step;
  a.k_step = data_gradient_ ? out_step : weight_taps_;
  float gathered[16 * 32];  // [column][k]
  if (frame_.window == 1 && geometry_.w.c == weight_channels_) {
    a.plain += out * a.column_step + in * a.k_step;
  } else {
    std::array<std::int64_t, 32> weights;
    const int first = data_gradient_ ? out : in, count = data_gradient_ ? a.columns : a.k;
    for (int i = 0; i < count; ++i) weights[static_cast<std::size_t>(i)] = WeightOf(first + i);
    for (int column = 0; column < a.columns; ++column)
      for (int k = 0; k < a.k; ++k)
        gathered[column * 32 + k] =
            data_gradient_
                ? a.plain[weights[static_cast<std::size_t>(column)] + (in + k) * out_step]
                : a.plain[(out + column) * out_step + weights[static_cast<std::size_t>(k)]];
    a.plain = gathered, a.column_step = 32, a.k_step = 1;
  }
  kernels_->pack_weights(a);
}

void TileConvolution::PackWeights(const float* plain, std::byte* tiles) const {
  const std::int64_t group = geometry_.w.numel() / geometry_.groups;
  for (int g = 0; g < geometry_.groups; ++g, plain += group) {
    for (const Part& part : parts_) {
      for (int out = 0; out < out_.c; out += 16) {
        for (int block = 0; block < frame_.blocks; ++block) {
          for (const Tap& tap : part.taps) {
            PackTile(plain, out, block, tap, tiles);
            tiles += 1024 * w_parts_;
          }
        }
      }
    }
  }
}

}  // namespace ada::backend::cpu
