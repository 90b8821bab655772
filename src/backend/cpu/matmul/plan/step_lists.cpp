// Which row blocks a call of a convolution has, and which steps they take; see
// packed_convolution.h.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "error.h"

namespace ada::backend::cpu {

// Row y of the output reads row y * row_step_ + tap.row of the frame. Column x reads column x +
// tap.column of its phase's frame, which holds one of every `phases` columns of the image.
// A window holds all columns of a tap in one packed pixel: which of them lie in the image, the
// packing has settled.
PackedConvolution::Met PackedConvolution::MetBy(const Part& part, const Tap& tap) const {
  const auto limit = [](std::int64_t distance, int step, int most) {
    return static_cast<int>(
        std::clamp<std::int64_t>(distance <= 0 ? 0 : QuotientUp(distance, step), 0, most));
  };
  const int above = frame_.top - tap.row, steps = frame_.phases;
  Met met{limit(above, row_step_, part.rows), limit(above + in_.h, row_step_, part.rows), 0,
          part.columns};
  if (frame_.window > 1 || frame_.dense_rows()) return met;
  const int before = frame_.left - tap.phase - tap.column * steps;
  met.left = limit(before, steps, part.columns);
  met.right = limit(before + in_.w, steps, part.columns);
  return met;
}

// Only weight gradients use this: a forward convolution has one part.
std::vector<PackedConvolution::Met> PackedConvolution::MetBySteps() const {
  std::vector<Met> met;
  for (int block = 0; block < frame_.blocks; ++block)
    for (const Tap& tap : parts_[0].taps) met.push_back(tap.met);
  return met;
}

// The lists of steps that any output of a row block needs, each once.
void PackedConvolution::ListSteps(Part& part) const {
  std::map<std::vector<int>, std::uint16_t> known;  // by taps
  part.list_begins.push_back(0);
  const auto list_of = [&](int row, int begin, int end) {
    std::vector<int> taps;
    for (int i = 0; i < static_cast<int>(part.taps.size()); ++i) {
      const Met& met = part.taps[static_cast<std::size_t>(i)].met;
      if (met.top <= row && row < met.bottom && met.left < end && begin < met.right)
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
std::vector<RowBlock> PackedConvolution::RowBlocksOf(const Part& part, int images) const {
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
std::vector<std::int64_t> PackedConvolution::StepsOf(const Part& part, int images) const {
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
  for (const Part& part : parts_) {
    lists.tiles.push_back(RowBlocksOf(part, images));
    lists.steps.push_back(StepsOf(part, images));
  }
}

}  // namespace ada::backend::cpu
