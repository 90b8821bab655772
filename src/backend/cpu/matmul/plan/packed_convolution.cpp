// Plans of convolutions over packed input; see packed_convolution.h.
#include "backend/cpu/matmul/plan/packed_convolution.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/blocks.h"

namespace ada::backend::cpu {
namespace {

// Columns that whole row blocks have.
int FilledColumns(int columns, int interleaved) {
  const int tile = 16 / interleaved;
  return QuotientUp(columns, tile) * tile;
}
// A flattened image is one pixel of many channels; for bf16 split it is the whole window of one
// step.
MatmulGeometry AsConvolution(const MatmulKernels& kernels, MatmulGeometry g) {
  if (!g.linear) return g;
  if (kernels.on_bf16_split()) {
    g.stride = {static_cast<int>(g.x.h), static_cast<int>(g.x.w)};
  } else {
    g.x = {g.x.n, 1, 1, g.x.per_image()};
  }
  g.w = {g.w.n, g.x.h, g.x.w, g.x.c};
  return g;
}
}  // namespace

PackedConvolution::PackedConvolution(const MatmulKernels& kernels, const MatmulGeometry& geometry,
                                     int block)
    : kernels_(&kernels),
      geometry_(AsConvolution(kernels, geometry)),
      weight_channels_(geometry.w.c),
      weight_taps_(geometry.w.h * geometry.w.w),
      block_(block) {}

// Sets the shapes of one group of channels.
void PackedConvolution::SetShapes(const Shape& in, const Shape& out) {
  in_ = in, out_ = out;
  in_pixel_ = in.c, out_pixel_ = out.c;
  in_.c /= geometry_.groups, out_.c /= geometry_.groups;
}

// For bf16 split as many images are interleaved as fill row blocks, but no more than a reduction
// block has: its kernel measures block by block.
PackedConvolution PackedConvolution::Forward(const MatmulKernels& kernels,
                                             const MatmulGeometry& geometry, int x_parts,
                                             int w_parts, int block, int most) {
  PackedConvolution c(kernels, geometry, block);
  c.w_parts_ = w_parts;
  c.SetShapes(c.geometry_.x, c.geometry_.y);
  c.frame_.interleaved = kernels.on_bf16_split() ? std::min(InterleavedImages(c.out_.w), block)
                                                 : ImagesForOutputs(kernels, c.geometry_, most);
  c.PlanForward();
  c.FinishPlan(x_parts, kernels.on_fp32() ? 16 : 32);
  return c;
}
PackedConvolution PackedConvolution::ForGradient(const MatmulKernels& kernels,
                                                 const MatmulGeometry& geometry, int block,
                                                 int most) {
  PackedConvolution c(kernels, geometry, block);
  c.SetShapes(c.geometry_.x, c.geometry_.y);
  c.images_in_pixel_ = kernels.on_bf16_dot() ? 2 : 1;
  c.frame_.interleaved = ImagesForLongRows(c.geometry_, most / c.images_in_pixel_);
  c.PlanForward();
  c.FinishPlan(1, 16);
  return c;
}
PackedConvolution PackedConvolution::DataGradient(const MatmulKernels& kernels,
                                                  const MatmulGeometry& geometry, int dy_parts,
                                                  int w_parts, int block, int most) {
  PackedConvolution c(kernels, geometry, block);
  c.data_gradient_ = true;
  c.w_parts_ = w_parts;
  c.SetShapes(c.geometry_.y, c.geometry_.x);
  c.frame_.interleaved =
      kernels.on_bf16_split()
          ? std::min(InterleavedImages(QuotientUp(c.out_.w, c.geometry_.stride[1])), block)
          : ImagesForDataGradient(kernels, c.geometry_, most);
  c.PlanDataGradient();
  c.FinishPlan(dy_parts, kernels.on_fp32() ? 16 : 32);
  return c;
}

// With few channels the columns of a kernel's row become channels of one step: a window that is
// packed for each output column, or a stretch of a dense row.
void PackedConvolution::PlanForward() {
  const MatmulGeometry& g = geometry_;
  const int kh = static_cast<int>(g.w.h), kw = static_cast<int>(g.w.w);
  OutputPhase part;
  part.rows = static_cast<int>(out_.h), part.columns = static_cast<int>(out_.w);
  frame_.top = g.padding[0], frame_.left = g.padding[1];
  row_step_ = g.stride[0];
  const bool dense_rows = TakesDenseRows();
  const bool windows =
      dense_rows || (kw > 1 && g.dilation[1] == 1 && in_.c * kw <= 16 && g.groups == 1);
  if (windows) frame_.window = kw, frame_.window_step = g.stride[1];
  if (dense_rows) frame_.dense_step = static_cast<int>(in_.c) * g.stride[1];
  if (!windows) frame_.phases = g.stride[1];
  int reach = 0;
  for (int ky = 0; ky < kh; ++ky) {
    for (int kx = 0; kx < (windows ? 1 : kw); ++kx) {
      const int column = kx * g.dilation[1];
      part.taps.push_back(
          {ky * g.dilation[0], column / frame_.phases, column % frame_.phases, ky * kw + kx});
      reach = std::max(reach, column / frame_.phases);
    }
  }
  frame_.rows = (part.rows - 1) * row_step_ + (kh - 1) * g.dilation[0] + 1;
  frame_.columns = FilledColumns(part.columns, frame_.interleaved) + reach;
  if (dense_rows) frame_.columns = (frame_.columns - 1) * g.stride[1] + kw;
  output_phases_.push_back(std::move(part));
}

// Packed pixels would be mostly zeros.
bool PackedConvolution::TakesDenseRows() const {
  return !kernels_->on_bf16_split() && frame_.interleaved == 1 && geometry_.dilation[1] == 1 &&
         geometry_.groups == 1 && in_.c < 16;
}

// dx of one phase of rows and columns is a convolution of dy without stride; all phases read one
// frame, whose zeros reach as far as any of them needs.
void PackedConvolution::PlanDataGradient() {
  const MatmulGeometry& g = geometry_;
  const int kw = static_cast<int>(g.w.w);
  out_step_ = g.stride;
  const int h = static_cast<int>(out_.h), w = static_cast<int>(out_.w);
  std::vector<std::vector<Reach>> columns_of;  // by stride phase
  for (int q = 0; q < std::min(g.stride[1], w); ++q) columns_of.push_back(ReachesOf(g, 1, q));
  int lowest[2] = {0, 0}, highest[2] = {0, 0};
  for (int r = 0; r < std::min(g.stride[0], h); ++r) {
    const std::vector<Reach> rows = ReachesOf(g, 0, r);
    for (int q = 0; q < std::min(g.stride[1], w); ++q) {
      OutputPhase part;
      part.row = r, part.column = q;
      part.rows = QuotientUp(h - r, g.stride[0]), part.columns = QuotientUp(w - q, g.stride[1]);
      const std::vector<Reach>& columns = columns_of[static_cast<std::size_t>(q)];
      for (const Reach& row : rows) {
        for (const Reach& column : columns) {
          part.taps.push_back({row.at, column.at, 0, row.k * kw + column.k});
          lowest[0] = std::min(lowest[0], row.at), lowest[1] = std::min(lowest[1], column.at);
          highest[0] = std::max(highest[0], row.at + part.rows - 1);
          highest[1] =
              std::max(highest[1], column.at + FilledColumns(part.columns, frame_.interleaved) - 1);
        }
      }
      output_phases_.push_back(std::move(part));
    }
  }
  frame_.top = -lowest[0], frame_.left = -lowest[1];
  for (OutputPhase& part : output_phases_)
    for (Tap& tap : part.taps) tap.row += frame_.top, tap.column += frame_.left;
  frame_.rows = highest[0] + frame_.top + 1, frame_.columns = highest[1] + frame_.left + 1;
}

// As many images are packed at once as a core's own cache holds besides weights and sums.
void PackedConvolution::FinishPlan(int in_parts, int pixel_channels) {
  const int channels = static_cast<int>(in_.c) * frame_.window;
  frame_.parts = in_parts;
  frame_.block = kernels_->on_bf16_split() && channels <= 16 ? 16 : pixel_channels;
  frame_.blocks = QuotientUp(channels, frame_.block);
  if (frame_.dense_rows()) {
    frame_.value_bytes = 64 / frame_.block;
    frame_.dense_values = QuotientUp(frame_.columns * in_.c, frame_.block) * frame_.block;
  }
  at_once_ = std::max(block_, frame_.interleaved * images_in_pixel_);
  while (PackedBytes(2 * at_once_) <= kernels_->packed_bytes) at_once_ *= 2;
  const std::int64_t image = out_.h * out_.w * out_pixel_;
  for (int i = 0; i < 16; ++i) {
    row_offsets_[static_cast<std::size_t>(i)] =
        i % frame_.interleaved * image + i / frame_.interleaved * out_step_[1] * out_pixel_;
    row_blocks_[static_cast<std::size_t>(i)] =
        static_cast<std::uint8_t>(i % frame_.interleaved / block_);
  }
  for (OutputPhase& part : output_phases_) {
    group_weight_bytes_ += static_cast<std::int64_t>(part.taps.size()) * frame_.blocks * w_parts_ *
                           1024 * QuotientUp(out_.c, 16);
    for (int block = 0; block < frame_.blocks; ++block)
      part.step_values.insert(
          part.step_values.end(), part.taps.size(),
          static_cast<std::uint8_t>(std::min(frame_.block, channels - block * frame_.block)));
    for (Tap& tap : part.taps) tap.valid = ValidOutputsOf(part, tap);
    if (!kernels_->on_bf16_split()) ListSteps(part);
  }
}

std::int64_t PackedConvolution::PlaneBytes(int images) const {
  return QuotientUp(QuotientUp(images, images_in_pixel_), frame_.interleaved) *
         frame_.group_bytes();
}
// The last window of a dense row may be read as a whole line.
std::int64_t PackedConvolution::PackedBytes(int images) const {
  return frame_.dense_rows() ? PlaneBytes(images) + 64 : frame_.blocks * PlaneBytes(images);
}

std::size_t PackedConvolution::scratch_bytes(int images) const {
  images = std::min(images, at_once_);
  const auto packed = static_cast<std::size_t>(PackedBytes(images));
  if (!kernels_->on_bf16_split()) return packed;
  std::size_t most = 0;  // row blocks whose sums wait
  for (const OutputPhase& part : output_phases_) {
    const int tiles = QuotientUp(images, frame_.interleaved) * part.rows *
                      QuotientUp(part.columns, 16 / frame_.interleaved);
    most = std::max(most, static_cast<std::size_t>(QuotientUp(tiles, 4) * 4));
  }
  return packed + most * 1024;
}

// Cuts a call into packed parts; every part begins with a reduction block.
void PackedConvolution::Run(const Call& call) const {
  Call some = call;
  for (int first = 0; first < call.images; first += at_once_) {
    some.images = std::min(at_once_, call.images - first);
    some.in = Advance(call.in, first * in_.h * in_.w * in_pixel_);
    some.out = Advance(call.out, first * out_.h * out_.w * out_pixel_);
    some.largest = call.largest + first / block_;
    RunSome(some);
  }
}

void PackedConvolution::PackInput(TensorSpan in, int images, std::byte* packed) const {
  PackInputArgs pack;
  pack.frame = frame_;
  pack.x = in;
  pack.images = images;
  pack.h = static_cast<int>(in_.h), pack.w = static_cast<int>(in_.w);
  pack.c = static_cast<int>(in_.c), pack.pixel = static_cast<int>(in_pixel_);
  pack.image_pairs = images_in_pixel_ == 2;
  pack.packed = packed;
  pack.plane_bytes = PlaneBytes(images);
  kernels_->pack_input(pack);
}

// Group by group of channels.
void PackedConvolution::RunSome(const Call& call) const {
  Call group = call;
  for (int g = 0; g < geometry_.groups; ++g) {
    RunGroup(group);
    group.in = Advance(group.in, in_.c), group.out = Advance(group.out, out_.c);
    group.weights += group_weight_bytes_;
    if (call.bias != nullptr) group.bias += out_.c;
  }
}

void PackedConvolution::RunGroup(const Call& call) const {
  const Lists& lists = lists_.at(call.images);
  PackInput(call.in, call.images, call.scratch);
  PackedConvolutionArgs a;
  a.packed = call.scratch;
  a.row_bytes = frame_.row_bytes(), a.x_parts = frame_.parts, a.w_parts = w_parts_;
  a.both_parts_in_row = frame_.block == 16;
  a.weights = call.weights;
  a.row_offsets = row_offsets_.data(), a.row_blocks = row_blocks_.data();
  a.channels = static_cast<int>(out_.c);
  a.sums = reinterpret_cast<float*>(call.scratch + PackedBytes(call.images));
  a.bias = call.bias, a.factor = call.factor;
  a.out = call.out, a.largest = call.largest;
  for (std::size_t i = 0; i < output_phases_.size(); ++i) {
    a.steps = lists.steps[i].data(), a.step_count = static_cast<int>(lists.steps[i].size());
    a.step_values = output_phases_[i].step_values.data();
    a.lists = output_phases_[i].lists.data(), a.list_begins = output_phases_[i].list_begins.data();
    a.tiles = lists.tiles[i].data(), a.tile_count = static_cast<int>(lists.tiles[i].size());
    kernels_->convolve(a);
    a.weights +=
        static_cast<std::ptrdiff_t>(a.step_count) * w_parts_ * 1024 * QuotientUp(a.channels, 16);
  }
}

}  // namespace ada::backend::cpu
