// Plans of tile convolutions; see tile_convolution.h.
#include "backend/cpu/products/tile_convolution.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/blocks.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

// Columns that whole tiles have.
int FilledColumns(int columns, int together) {
  const int tile = 16 / together;
  return QuotientUp(columns, tile) * tile;
}
// A flattened image is the whole window of one convolution step.
ProductGeometry AsConvolution(ProductGeometry g) {
  if (!g.linear) return g;
  g.w = {g.w.n, g.x.h, g.x.w, g.x.c};
  g.stride = {static_cast<int>(g.x.h), static_cast<int>(g.x.w)};
  return g;
}
}  // namespace

TileConvolution::TileConvolution(const TileKernels& kernels, const ProductGeometry& geometry,
                                 int block)
    : kernels_(&kernels), geometry_(AsConvolution(geometry)), block_(block) {}

TileConvolution TileConvolution::Forward(const TileKernels& kernels,
                                         const ProductGeometry& geometry, int x_parts, int w_parts,
                                         int block) {
  TileConvolution c(kernels, geometry, block);
  c.w_parts_ = w_parts;
  c.in_ = geometry.x, c.out_ = geometry.y;
  c.PlanForward();
  c.FinishPlan(x_parts, kernels.of_floats() ? 16 : 32);
  return c;
}
TileConvolution TileConvolution::ForGradient(const TileKernels& kernels,
                                             const ProductGeometry& geometry, int block) {
  TileConvolution c(kernels, geometry, block);
  c.in_ = geometry.x, c.out_ = geometry.y;
  c.images_in_record_ = kernels.of_pairs() ? 2 : 1;
  c.PlanForward();
  c.FinishPlan(1, 16);
  return c;
}
TileConvolution TileConvolution::DataGradient(const TileKernels& kernels,
                                              const ProductGeometry& geometry, int dy_parts,
                                              int w_parts, int block) {
  TileConvolution c(kernels, geometry, block);
  c.data_gradient_ = true;
  c.w_parts_ = w_parts;
  c.in_ = geometry.y, c.out_ = geometry.x;
  c.PlanDataGradient();
  c.FinishPlan(dy_parts, kernels.of_floats() ? 16 : 32);
  return c;
}

void TileConvolution::PlanForward() {
  const ProductGeometry& g = geometry_;
  const int kh = static_cast<int>(g.w.h), kw = static_cast<int>(g.w.w);
  Part part;
  part.rows = static_cast<int>(out_.h), part.columns = static_cast<int>(out_.w);
  frame_.together = std::min(ImagesTogether(out_.w), block_);
  frame_.top = g.padding[0], frame_.left = g.padding[1];
  row_step_ = g.stride[0];
  const bool windows = kw > 1 && g.dilation[1] == 1 && in_.c * kw <= 16;
  if (windows) {
    frame_.window = kw, frame_.window_step = g.stride[1];
  } else {
    frame_.remainders = g.stride[1];
  }
  int reach = 0;
  for (int ky = 0; ky < kh; ++ky) {
    for (int kx = 0; kx < (windows ? 1 : kw); ++kx) {
      const int column = kx * g.dilation[1];
      part.taps.push_back({ky * g.dilation[0], column / frame_.remainders,
                           column % frame_.remainders, ky * kw + kx});
      reach = std::max(reach, column / frame_.remainders);
    }
  }
  frame_.rows = (part.rows - 1) * row_step_ + (kh - 1) * g.dilation[0] + 1;
  frame_.columns = FilledColumns(part.columns, frame_.together) + reach;
  parts_.push_back(std::move(part));
}

void TileConvolution::PlanDataGradient() {
  const ProductGeometry& g = geometry_;
  const int kw = static_cast<int>(g.w.w);
  out_step_ = g.stride;
  const int h = static_cast<int>(out_.h), w = static_cast<int>(out_.w);
  frame_.together = std::min(ImagesTogether(QuotientUp(w, g.stride[1])), block_);
  std::vector<std::vector<Reach>> columns_of;  // by remainder
  for (int q = 0; q < std::min(g.stride[1], w); ++q) columns_of.push_back(ReachesOf(g, 1, q));
  int lowest[2] = {0, 0}, highest[2] = {0, 0};
  for (int r = 0; r < std::min(g.stride[0], h); ++r) {
    const std::vector<Reach> rows = ReachesOf(g, 0, r);
    for (int q = 0; q < std::min(g.stride[1], w); ++q) {
      Part part;
      part.row = r, part.column = q;
      part.rows = QuotientUp(h - r, g.stride[0]), part.columns = QuotientUp(w - q, g.stride[1]);
      const std::vector<Reach>& columns = columns_of[static_cast<std::size_t>(q)];
      for (const Reach& row : rows) {
        for (const Reach& column : columns) {
          part.taps.push_back({row.at, column.at, 0, row.k * kw + column.k});
          lowest[0] = std::min(lowest[0], row.at), lowest[1] = std::min(lowest[1], column.at);
          highest[0] = std::max(highest[0], row.at + part.rows - 1);
          highest[1] =
              std::max(highest[1], column.at + FilledColumns(part.columns, frame_.together) - 1);
        }
      }
      parts_.push_back(std::move(part));
    }
  }
  frame_.top = -lowest[0], frame_.left = -lowest[1];
  for (Part& part : parts_)
    for (Tap& tap : part.taps) tap.row += frame_.top, tap.column += frame_.left;
  frame_.rows = highest[0] + frame_.top + 1, frame_.columns = highest[1] + frame_.left + 1;
}

void TileConvolution::FinishPlan(int in_parts, int record_channels) {
  const int channels = static_cast<int>(in_.c) * frame_.window;
  frame_.parts = in_parts;
  frame_.block = kernels_->of_parts() && channels <= 16 ? 16 : record_channels;
  frame_.blocks = QuotientUp(channels, frame_.block);
  at_once_ = std::max(block_, frame_.together);
  while (frame_.blocks * PlaneBytes(2 * at_once_) <= kernels_->record_bytes) at_once_ *= 2;
  const std::int64_t image = out_.per_image();
  for (int i = 0; i < 16; ++i)
    row_offsets_[static_cast<std::size_t>(i)] =
        i % frame_.together * image + i / frame_.together * out_step_[1] * out_.c;
  for (Part& part : parts_) {
    weight_bytes_ += part.taps.size() * static_cast<std::size_t>(frame_.blocks * w_parts_) * 1024 *
                     static_cast<std::size_t>(QuotientUp(static_cast<int>(out_.c), 16));
    for (int block = 0; block < frame_.blocks; ++block)
      part.step_values.insert(
          part.step_values.end(), part.taps.size(),
          static_cast<std::uint8_t>(std::min(frame_.block, channels - block * frame_.block)));
  }
}

std::int64_t TileConvolution::PlaneBytes(int images) const {
  return QuotientUp(QuotientUp(images, images_in_record_), frame_.together) *
         frame_.group_records() * frame_.row_bytes();
}

std::vector<TileOfRows> TileConvolution::TilesOf(const Part& part, int images) const {
  std::vector<TileOfRows> tiles;
  const int together = frame_.together, columns = 16 / together;
  for (int first = 0; first < images; first += together) {
    const std::int64_t group = first / together * frame_.group_records();
    for (int y = 0; y < part.rows; ++y) {
      for (int x = 0; x < part.columns; x += columns) {
        TileOfRows tile;
        tile.record =
            (group + (static_cast<std::int64_t>(y) * row_step_ * frame_.columns + x) * together) *
            frame_.row_bytes();
        const std::int64_t row = part.row + static_cast<std::int64_t>(y) * out_step_[0];
        const std::int64_t column = part.column + static_cast<std::int64_t>(x) * out_step_[1];
        tile.out = first * out_.per_image() + (row * out_.w + column) * out_.c;
        tile.block = first / block_;
        for (int i = 0; i < 16; ++i)
          if (x + i / together < part.columns && first + i % together < images)
            tile.valid |= 1u << i;
        tiles.push_back(tile);
      }
    }
  }
  while (tiles.size() % 4 != 0) {  // computed and forgotten
    tiles.push_back(tiles.back());
    tiles.back().valid = 0;
  }
  return tiles;
}

// Taps of one block of channels follow one another: they read the same records, shifted.
std::vector<std::int64_t> TileConvolution::StepsOf(const Part& part, int images) const {
  std::vector<std::int64_t> steps;
  for (int block = 0; block < frame_.blocks; ++block) {
    for (const Tap& tap : part.taps) {
      const std::int64_t records =
          ((static_cast<std::int64_t>(tap.remainder) * frame_.rows + tap.row) * frame_.columns +
           tap.column) *
          frame_.together;
      steps.push_back(records * frame_.row_bytes() + block * PlaneBytes(images));
    }
  }
  return steps;
}

void TileConvolution::Prepare(int images) {
  if (images > at_once_) PrepareSome(at_once_);
  PrepareSome(images > at_once_ ? (images - 1) % at_once_ + 1 : images);
}

void TileConvolution::PrepareSome(int images) {
  if (lists_.count(images) != 0) return;
  ADA_CHECK(block_ % frame_.together == 0);
  Lists& lists = lists_[images];
  for (const Part& part : parts_) {
    lists.tiles.push_back(TilesOf(part, images));
    lists.steps.push_back(StepsOf(part, images));
  }
}

std::size_t TileConvolution::scratch_bytes(int images) const {
  images = std::min(images, at_once_);
  const auto records = static_cast<std::size_t>(frame_.blocks * PlaneBytes(images));
  if (!kernels_->of_parts()) return records;
  std::size_t most = 0;  // tiles whose sums wait
  for (const Part& part : parts_) {
    const int tiles = QuotientUp(images, frame_.together) * part.rows *
                      QuotientUp(part.columns, 16 / frame_.together);
    most = std::max(most, static_cast<std::size_t>(QuotientUp(tiles, 4) * 4));
  }
  return records + most * 1024;
}

void TileConvolution::Run(const Call& call) const {
  Call some = call;
  for (int first = 0; first < call.images; first += at_once_) {
    some.images = std::min(at_once_, call.images - first);
    some.in = Advance(call.in, first * in_.per_image());
    some.out = Advance(call.out, first * out_.per_image());
    some.largest = call.largest + first / block_;
    RunSome(some);
  }
}

void TileConvolution::PackRecords(TensorSpan in, int images, std::byte* records) const {
  PackRecordsArgs pack;
  pack.frame = frame_;
  pack.x = in;
  pack.images = images;
  pack.h = static_cast<int>(in_.h), pack.w = static_cast<int>(in_.w);
  pack.c = static_cast<int>(in_.c);
  pack.image_pairs = images_in_record_ == 2;
  pack.records = records;
  pack.plane_bytes = PlaneBytes(images);
  kernels_->pack_records(pack);
}

void TileConvolution::RunSome(const Call& call) const {
  const Lists& lists = lists_.at(call.images);
  PackRecords(call.in, call.images, call.scratch);
  TileConvolutionArgs a;
  a.records = call.scratch;
  a.row_bytes = frame_.row_bytes(), a.x_parts = frame_.parts, a.w_parts = w_parts_;
  a.both_parts_in_row = frame_.block == 16;
  a.weights = call.weights;
  a.row_offsets = row_offsets_.data();
  a.channels = static_cast<int>(out_.c);
  a.sums = reinterpret_cast<float*>(call.scratch + frame_.blocks * PlaneBytes(call.images));
  a.bias = call.bias, a.factor = call.factor;
  a.out = call.out, a.largest = call.largest;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    a.steps = lists.steps[i].data(), a.step_count = static_cast<int>(lists.steps[i].size());
    a.step_values = parts_[i].step_values.data();
    a.tiles = lists.tiles[i].data(), a.tile_count = static_cast<int>(lists.tiles[i].size());
    kernels_->convolve(a);
    a.weights +=
        static_cast<std::ptrdiff_t>(a.step_count) * w_parts_ * 1024 * QuotientUp(a.channels, 16);
  }
}

}  // namespace ada::backend::cpu
