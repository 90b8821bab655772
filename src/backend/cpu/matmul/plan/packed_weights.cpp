// Packs weights from PyTorch's order for a convolution; see packed_convolution.h.
#include <algorithm>

#include "backend/cpu/matmul/plan/packed_convolution.h"

namespace ada::backend::cpu {

// In the order of steps: blocks of channels, taps within them.
std::vector<PackedConvolution::StepWeight> PackedConvolution::StepWeights() const {
  std::vector<StepWeight> weights;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : parts_[0].taps) weights.push_back({block * frame_.block, tap.weight});
  return weights;
}

// PyTorch has the taps of one channel together.
std::int64_t PackedConvolution::WeightOf(std::int64_t i) const {
  return i % weight_channels_ * weight_taps_ + i / weight_channels_;
}

// One block of weights: input channels of `block`, 16 output channels from `out` on.
void PackedConvolution::PackTile(const float* plain, int out, int block, const Tap& tap,
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
  // In flattened images with one channel the weights of an output lie as the pixels do.
  const bool flat = geometry_.w.h * geometry_.w.w == 1 && weight_channels_ == 1;
  const std::int64_t in_step = flat ? 1 : weight_taps_;
  // A data gradient's input channels are the output channels of the layer.
  a.column_step = data_gradient_ ? in_step : out_step;
  a.k_step = data_gradient_ ? out_step : in_step;
  float gathered[16 * 32];  // [column][k]
  if (frame_.window == 1 && (flat || geometry_.w.c == weight_channels_)) {
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

int PackedConvolution::panels() const {
  return geometry_.groups * static_cast<int>(parts_.size()) * QuotientUp(out_.c, 16);
}

// In the order of packed weights: groups of channels, parts, output channels.
// Zero weights multiply to zeros here: it never declines.
bool PackedConvolution::PackPanel(int panel, const float* plain, std::byte* tiles) const {
  const int outs = QuotientUp(out_.c, 16), parts = static_cast<int>(parts_.size());
  const int group = panel / (parts * outs), out = panel % outs;
  plain += group * geometry_.w.numel() / geometry_.groups;
  tiles += group * group_weight_bytes_;
  const auto part = parts_.begin() + panel / outs % parts;
  const auto panel_bytes = [&](const Part& p) {
    return static_cast<std::int64_t>(p.taps.size()) * frame_.blocks * w_parts_ * 1024;
  };
  for (auto before = parts_.begin(); before != part; ++before) tiles += outs * panel_bytes(*before);
  tiles += out * panel_bytes(*part);
  for (int block = 0; block < frame_.blocks; ++block) {
    for (const Tap& tap : part->taps) {
      PackTile(plain, 16 * out, block, tap, tiles);
      tiles += 1024 * w_parts_;
    }
  }
  return true;
}

}  // namespace ada::backend::cpu
