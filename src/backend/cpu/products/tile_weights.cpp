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

// One tile: input channels of `block`, 16 output channels from `out` on.
void TileConvolution::PackTile(const float* plain, int out, int block, const Tap& tap,
                               std::byte* tile) const {
  const ProductGeometry& g = geometry_;
  const std::int64_t taps = g.w.h * g.w.w;
  const int in = block * frame_.block, channels = static_cast<int>(in_.c) * frame_.window;
  PackWeightsArgs a;
  a.columns = std::min(16, static_cast<int>(out_.c) - out);
  a.k = std::min(frame_.block, channels - in);
  a.twice = frame_.block == 16;
  a.parts = w_parts_;
  a.tiles = tile;
  if (data_gradient_) {  // what goes in are output channels of the layer
    a.column_step = taps, a.k_step = g.w.c * taps;
  } else {
    a.column_step = g.w.c * taps, a.k_step = taps;
  }
  a.plain = plain + out * a.column_step + in * a.k_step + tap.weight;
  float window[16 * 16];  // [column][kx][channel]
  if (frame_.window > 1) {
    for (int column = 0; column < a.columns; ++column)
      for (int k = 0; k < a.k; ++k)
        window[column * 16 + k] = a.plain[column * a.column_step + k % in_.c * taps + k / in_.c];
    a.plain = window, a.column_step = 16, a.k_step = 1;
  }
  kernels_->pack_weights(a);
}

void TileConvolution::PackWeights(const float* plain, std::byte* tiles) const {
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

}  // namespace ada::backend::cpu
