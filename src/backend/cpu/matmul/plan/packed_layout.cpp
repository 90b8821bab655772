// How a call of a convolution lies in memory: how many images are interleaved, weights packed from
// PyTorch's order, the row blocks of the output, and the steps that they take; see
// packed_convolution.h.
#include <algorithm>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "backend/reductions.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

constexpr int kBlockRows = 16, kPixelBytes = 64;

// Columns of the output that take the same taps: column x reads x * step + tap of the input.
struct Columns {
  int count, step;
  std::vector<int> taps;
};

// Steps of a row of the output, counted in blocks of rows that span `wide` columns each.
std::int64_t StepsOfRow(const std::vector<Columns>& by_phase, std::int64_t in_width, int wide) {
  std::int64_t steps = 0;
  for (const Columns& columns : by_phase)
    for (int x = 0; x < columns.count; x += wide) {
      const int last = std::min(x + wide, columns.count) - 1;
      for (const int tap : columns.taps)
        if (last * columns.step + tap >= 0 && x * columns.step + tap < in_width) ++steps;
    }
  return steps;
}

// in, out: what is read and what is made, of all groups of channels.
// The cost is the number of steps of all row blocks; at equal cost the usual number stays.
int Choose(const MatmulKernels& kernels, const MatmulGeometry& g, const Shape& in, const Shape& out,
           const std::vector<Columns>& by_phase, int images) {
  const int usual = InterleavedImages(by_phase[0].count);
  // Few channels of images lie as windows or dense rows (PackedFrame).
  if (in.c / g.groups < 16) return usual;
  const int rows = out.c / g.groups >= 2 * kBlockRows ? kernels.rows : kBlockRows;
  const std::int64_t packed_bytes = std::int64_t{kPixelBytes} * (in.h + g.w.h) * (in.w + g.w.w) *
                                    QuotientUp(in.c / g.groups, kernels.on_bf16_dot() ? 32 : 16);
  const auto cost = [&](int interleaved) {
    return QuotientUp(images, interleaved) * std::max(1, interleaved / rows) *
           StepsOfRow(by_phase, in.w, std::max(1, rows / interleaved));
  };
  int best = usual;
  for (int interleaved = 1; interleaved <= std::min(images, kBlockRows); interleaved *= 2)
    if ((interleaved == 1 || interleaved * packed_bytes <= kernels.packed_bytes) &&
        cost(interleaved) < cost(best))
      best = interleaved;
  return best;
}

}  // namespace

int ImagesForOutputs(const MatmulKernels& kernels, const MatmulGeometry& g, int images) {
  Columns columns{static_cast<int>(g.y.w), g.stride[1], {}};
  for (int k = 0; k < g.w.w; ++k) columns.taps.push_back(k * g.dilation[1] - g.padding[1]);
  return Choose(kernels, g, g.x, g.y, {columns}, images);
}

int ImagesForDataGradient(const MatmulKernels& kernels, const MatmulGeometry& g, int images) {
  std::vector<Columns> by_phase;
  const auto width = static_cast<int>(g.x.w);
  for (int q = 0; q < std::min(g.stride[1], width); ++q) {
    Columns columns{QuotientUp(width - q, g.stride[1]), 1, {}};
    for (const Reach& reach : ReachesOf(g, 1, q)) columns.taps.push_back(reach.at);
    by_phase.push_back(columns);
  }
  return Choose(kernels, g, g.y, g.x, by_phase, images);
}

int ImagesForLongRows(const MatmulGeometry& g, int images) {
  constexpr int kPositions = 64;
  int interleaved = InterleavedImages(g.y.w);
  if (g.x.c / g.groups < 16) return interleaved;  // windows and dense rows
  while (interleaved > std::max(1, images)) interleaved /= 2;
  while (2 * interleaved <= std::min(images, kBlockRows) && 2 * interleaved * g.y.w <= kPositions)
    interleaved *= 2;
  return interleaved;
}

// In the order of steps: blocks of channels, taps within them.
std::vector<PackedConvolution::StepWeight> PackedConvolution::StepWeights() const {
  std::vector<StepWeight> weights;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : output_phases_[0].taps)
      weights.push_back({block * frame_.block, tap.weight});
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
  return geometry_.groups * static_cast<int>(output_phases_.size()) * QuotientUp(out_.c, 16);
}

// In the order of packed weights: groups of channels, parts, output channels.
// Zero weights multiply to zeros here: it never declines.
bool PackedConvolution::PackPanel(int panel, const float* plain, std::byte* tiles) const {
  const int outs = QuotientUp(out_.c, 16), parts = static_cast<int>(output_phases_.size());
  const int group = panel / (parts * outs), out = panel % outs;
  plain += group * geometry_.w.numel() / geometry_.groups;
  tiles += group * group_weight_bytes_;
  const auto part = output_phases_.begin() + panel / outs % parts;
  const auto panel_bytes = [&](const OutputPhase& p) {
    return static_cast<std::int64_t>(p.taps.size()) * frame_.blocks * w_parts_ * 1024;
  };
  for (auto before = output_phases_.begin(); before != part; ++before)
    tiles += outs * panel_bytes(*before);
  tiles += out * panel_bytes(*part);
  for (int block = 0; block < frame_.blocks; ++block) {
    for (const Tap& tap : part->taps) {
      PackTile(plain, 16 * out, block, tap, tiles);
      tiles += 1024 * w_parts_;
    }
  }
  return true;
}

// Row y of the output reads row y * row_step_ + tap.row of the frame. Column x reads column x +
// tap.column of its phase's frame, which holds one of every `phases` columns of the image.
// A window holds all columns of a tap in one packed pixel: which of them lie in the image, the
// packing has settled.
ValidOutputs PackedConvolution::ValidOutputsOf(const OutputPhase& part, const Tap& tap) const {
  const auto limit = [](std::int64_t distance, int step, int most) {
    return static_cast<int>(
        std::clamp<std::int64_t>(distance <= 0 ? 0 : QuotientUp(distance, step), 0, most));
  };
  const int above = frame_.top - tap.row, steps = frame_.phases;
  ValidOutputs valid{limit(above, row_step_, part.rows), limit(above + in_.h, row_step_, part.rows),
                     0, part.columns};
  if (frame_.window > 1 || frame_.dense_rows()) return valid;
  const int before = frame_.left - tap.phase - tap.column * steps;
  valid.left = limit(before, steps, part.columns);
  valid.right = limit(before + in_.w, steps, part.columns);
  return valid;
}

// Only weight gradients use this: a forward convolution has one part.
std::vector<ValidOutputs> PackedConvolution::ValidOutputsOfSteps() const {
  std::vector<ValidOutputs> valid;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : output_phases_[0].taps) valid.push_back(tap.valid);
  return valid;
}

// The lists of steps that any output of a row block needs, each once.
void PackedConvolution::ListSteps(OutputPhase& part) const {
  std::map<std::vector<int>, std::uint16_t> known;  // by taps
  part.list_begins.push_back(0);
  const auto list_of = [&](int row, int begin, int end) {
    std::vector<int> taps;
    for (int i = 0; i < static_cast<int>(part.taps.size()); ++i) {
      const ValidOutputs& valid = part.taps[static_cast<std::size_t>(i)].valid;
      if (valid.top <= row && row < valid.bottom && valid.left < end && begin < valid.right)
        taps.push_back(i);
    }
    const auto [at, is_new] = known.try_emplace(taps, static_cast<std::uint16_t>(known.size()));
    if (is_new) {
      for (int block = 0; block < frame_.blocks; ++block)
        for (const int tap : taps)
          part.lists.push_back(block * static_cast<int>(part.taps.size()) + tap);
      part.list_begins.push_back(static_cast<std::int32_t>(part.lists.size()));
    }
    return at->second;
  };
  const int columns = 16 / frame_.interleaved;
  const int first = QuotientUp(columns, 2), second = columns / 2;  // one column: both halves
  for (int y = 0; y < part.rows; ++y)
    for (int x = 0; x < part.columns; x += columns)
      part.row_block_steps.push_back(
          {{list_of(y, x, x + first), list_of(y, x + second, x + columns)},
           list_of(y, x, x + columns)});
}

// Row i of a row block is image i % interleaved of the group, column x + i / interleaved.
std::vector<RowBlock> PackedConvolution::RowBlocksOf(const OutputPhase& part, int images) const {
  std::vector<RowBlock> tiles;
  const int interleaved = frame_.interleaved, columns = 16 / interleaved;
  for (int first = 0; first < images; first += interleaved) {
    const std::int64_t group = first / interleaved * frame_.group_bytes();
    std::size_t row_blocks_of_image = 0;
    for (int y = 0; y < part.rows; ++y) {
      for (int x = 0; x < part.columns; x += columns) {
        RowBlock tile;
        tile.packed_pixel = group + y * row_step_ * frame_.line_bytes() +
                            std::int64_t{x} * interleaved * frame_.row_bytes();
        const std::int64_t row = part.row + static_cast<std::int64_t>(y) * out_step_[0];
        const std::int64_t column = part.column + static_cast<std::int64_t>(x) * out_step_[1];
        tile.out = ((first * out_.h + row) * out_.w + column) * out_pixel_;
        tile.block = first / block_;
        if (!part.row_block_steps.empty()) tile.steps = part.row_block_steps[row_blocks_of_image++];
        for (int i = 0; i < 16; ++i)
          if (x + i / interleaved < part.columns && first + i % interleaved < images)
            tile.valid |= 1u << i;
        tiles.push_back(tile);
      }
    }
  }
  // The AMX kernel takes two pairs of row blocks at a time.
  while (tiles.size() % 4 != 0) {  // computed and forgotten
    tiles.push_back(tiles.back());
    tiles.back().valid = 0;
  }
  return tiles;
}

// Taps of one block of channels follow one another: they read the same packed pixels, shifted.
std::vector<std::int64_t> PackedConvolution::StepsOf(const OutputPhase& part, int images) const {
  const std::int64_t block_bytes = frame_.dense_rows() ? 64 : PlaneBytes(images);
  std::vector<std::int64_t> steps;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : part.taps)
      steps.push_back(
          (static_cast<std::int64_t>(tap.phase) * frame_.rows + tap.row) * frame_.line_bytes() +
          std::int64_t{tap.column} * frame_.interleaved * frame_.row_bytes() + block * block_bytes);
  return steps;
}

void PackedConvolution::Prepare(int images) {
  if (images > at_once_) PrepareSome(at_once_);
  PrepareSome(images > at_once_ ? (images - 1) % at_once_ + 1 : images);
}

// Lists are the same for all calls of as many images, and made once. A reduction block must not be
// cut by a group of interleaved images, or its largest magnitude would be mixed with another's.
void PackedConvolution::PrepareSome(int images) {
  if (lists_.count(images) != 0) return;
  ADA_CHECK(block_ % frame_.interleaved == 0 ||
            (!kernels_->on_bf16_split() && frame_.interleaved % block_ == 0));
  Lists& lists = lists_[images];
  for (const OutputPhase& part : output_phases_) {
    lists.tiles.push_back(RowBlocksOf(part, images));
    lists.steps.push_back(StepsOf(part, images));
  }
}

}  // namespace ada::backend::cpu
