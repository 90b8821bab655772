// See partial_gradients.h.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"

namespace ada::backend::cpu {
namespace {

constexpr int kTileOfWeights = 256;  // values
// Sums pass through memory once a strip: so many positions make that cheap, and their x and dy stay
// in the first level of the cache.
constexpr int kStripPositions = 128;
// The bytes of a partial gradient that a core's own cache holds while images pass, and the blocks
// of 16 output channels for which x is packed once.
constexpr std::int64_t kSliceBytes = 1 << 18, kSliceBlocks = 4;

// Equal pieces of a row that has more positions than the limit; 1 if there is no such divisor.
int PiecesOf(int positions) {
  for (int pieces = 1; pieces <= positions; ++pieces)
    if (positions % pieces == 0 && positions / pieces <= kStripPositions)
      return positions / pieces * 4 >= kStripPositions ? pieces : 1;
  return 1;
}

}  // namespace

// places_ maps each value of a step to its index in PyTorch's order; if tiles have that order
// already, they are only transposed.
DirectWeightGradient::DirectWeightGradient(const MatmulKernels& kernels,
                                           const MatmulGeometry& geometry, int block, int most)
    : kernels_(kernels),
      geometry_(geometry),
      forward_(PackedConvolution::ForGradient(kernels, geometry, block, most)),
      out_channels_(static_cast<int>(geometry.y.c) / geometry.groups),
      out_blocks_(QuotientUp(out_channels_, 16)) {
  const auto positions = static_cast<int>(geometry.y.w) * forward_.frame().interleaved;
  pieces_ = PiecesOf(positions), positions_ = positions / pieces_;
  strip_rows_ = std::max(1, kStripPositions / positions_);
  const std::vector<PackedConvolution::StepWeight> weights = forward_.StepWeights();
  for (const PackedConvolution::StepWeight& weight : weights)
    for (int k = 0; k < 16; ++k)
      places_.push_back(forward_.WeightOf(weight.channel + k) + weight.weight);
  const int interleaved = forward_.frame().interleaved;
  for (const ValidOutputs& valid : forward_.ValidOutputsOfSteps())
    valid_.push_back(
        {valid.top, valid.bottom, valid.left * interleaved, valid.right * interleaved});
  const std::vector<std::uint8_t>& values = forward_.step_values();
  for (std::size_t i = 0; i < static_cast<std::size_t>(inputs()); ++i)
    in_order_ = in_order_ && i % 16 < values[i / 16] && places_[i] == static_cast<std::int64_t>(i);
  const auto steps = static_cast<int>(weights.size());
  if (geometry.linear && kernels.on_fp32()) {
    const std::int64_t block_bytes = std::int64_t{4} * kTileOfWeights * steps;
    slice_blocks_ =
        static_cast<int>(std::clamp<std::int64_t>(kSliceBytes / block_bytes, 1, kSliceBlocks));
    slices_ = QuotientUp(out_blocks_, slice_blocks_);
  }
  for (int out = 0; out < out_blocks_ * geometry.groups; ++out)
    groups_.push_back({1, steps, out, 0, out * steps});
}

DirectWeightGradient::Layout DirectWeightGradient::LayoutOf(int images) const {
  const PackedFrame& frame = forward_.frame();
  Layout layout;
  const int images_of_group = frame.interleaved * forward_.images_in_pixel();
  layout.groups = (images + images_of_group - 1) / images_of_group;
  const std::int64_t rows = layout.groups * geometry_.y.h;
  layout.dy_plane_bytes = rows * geometry_.y.w * frame.interleaved * 64;
  layout.dy = static_cast<std::size_t>(forward_.PackedBytes(images));
  layout.rows = layout.dy + static_cast<std::size_t>(out_blocks_ * layout.dy_plane_bytes);
  layout.bytes =
      layout.rows + WholeLines(static_cast<std::size_t>(rows * pieces_) * sizeof(GradientRow));
  return layout;
}

std::size_t DirectWeightGradient::scratch_bytes(int images) const {
  return LayoutOf(std::min(images, forward_.images_at_once())).bytes;
}
std::int64_t DirectWeightGradient::partial_values() const {
  const std::int64_t bias = geometry_.bias ? 16 * out_blocks_ : 0;
  return geometry_.groups * (group_values() + bias);
}

// each(x, dy, images, whether they are the first), for as many images at a time as packed pixels
// hold.
template <class Each>
void DirectWeightGradient::ForImages(TensorSpan x, TensorSpan dy, int images, Each&& each) const {
  const int most = forward_.images_at_once();
  for (int i = 0; i < images; i += most)
    each(Advance(x, i * geometry_.x.per_image()), Advance(dy, i * geometry_.y.per_image()),
         std::min(most, images - i), i == 0);
}

// Group by group of channels.
void DirectWeightGradient::Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                               std::byte* scratch) const {
  ForImages(x, dy, images, [&](TensorSpan of_x, TensorSpan of_dy, int some, bool begins) {
    for (int group = 0; group < geometry_.groups; ++group)
      RunSome({group, 0, out_blocks_}, of_x, of_dy, some, first && begins, partial, scratch);
  });
}

void DirectWeightGradient::RunSlice(int slice, TensorSpan x, TensorSpan dy, int images,
                                    float* partial, std::byte* scratch) const {
  const int begin = slice * slice_blocks_;
  const OutputRange outs{0, begin, std::min(slice_blocks_, out_blocks_ - begin)};
  ForImages(x, dy, images, [&](TensorSpan of_x, TensorSpan of_dy, int some, bool begins) {
    RunSome(outs, of_x, of_dy, some, begins, partial, scratch);
  });
}

void DirectWeightGradient::PackDy(const OutputRange& outs, TensorSpan dy, int images,
                                  const Layout& layout, std::byte* packed) const {
  PackInputArgs pack;
  pack.frame.interleaved = forward_.frame().interleaved;
  pack.frame.rows = static_cast<int>(geometry_.y.h);
  pack.frame.columns = static_cast<int>(geometry_.y.w);
  pack.frame.block = 16, pack.frame.blocks = outs.blocks;
  pack.x = Advance(dy, outs.group * out_channels_ + 16 * outs.first);
  pack.images = images, pack.image_pairs = forward_.images_in_pixel() == 2;
  pack.h = pack.frame.rows, pack.w = pack.frame.columns;
  pack.c = std::min(16 * outs.blocks, out_channels_ - 16 * outs.first);
  pack.pixel = static_cast<int>(geometry_.y.c);
  pack.packed = packed, pack.plane_bytes = layout.dy_plane_bytes;
  kernels_.pack_input(pack);
}

// x is packed for all outputs of the call, dy for its blocks of output channels.
void DirectWeightGradient::RunSome(const OutputRange& outs, TensorSpan x, TensorSpan dy, int images,
                                   bool first, float* partial, std::byte* scratch) const {
  const Layout layout = LayoutOf(images);
  const PackedFrame& frame = forward_.frame();
  forward_.PackInput(Advance(x, outs.group * geometry_.x.c / geometry_.groups), images,
                     scratch + layout.x);
  PackDy(outs, dy, images, layout, scratch + layout.dy);
  auto* rows = reinterpret_cast<GradientRow*>(scratch + layout.rows);
  int count = 0;
  for (int interleaved = 0; interleaved < layout.groups; ++interleaved)
    for (int row = 0; row < geometry_.y.h; ++row)
      for (int piece = 0; piece < pieces_; ++piece)
        rows[count++] = {interleaved * frame.group_bytes() +
                             row * forward_.row_step() * frame.line_bytes() +
                             std::int64_t{piece} * positions_ * frame.row_bytes(),
                         row, piece * positions_};
  const std::vector<std::int64_t> steps = forward_.Steps(images);
  DirectGradientArgs a;
  a.x = scratch + layout.x, a.rows_of_y = rows;
  a.x_bytes = frame.row_bytes();
  a.steps = steps.data(), a.step_values = forward_.step_values().data(), a.valid = valid_.data();
  a.step_count = static_cast<int>(steps.size());
  a.dy = scratch + layout.dy, a.dy_plane_bytes = layout.dy_plane_bytes;
  a.out_blocks = outs.blocks, a.rows = count;
  a.positions = positions_;
  a.strip_rows = strip_rows_;
  const int block = outs.group * out_blocks_ + outs.first;
  a.first = first, a.partial = partial + block * block_values();
  if (geometry_.bias) a.bias = partial + geometry_.groups * group_values() + 16 * block;
  kernels_.direct_gradient(a);
}

int DirectWeightGradient::OutputsOf(const GradientGroup& g) const {
  return std::min(16, out_channels_ - g.out % out_blocks_ * 16);
}
std::int64_t DirectWeightGradient::FirstOutput(const GradientGroup& g) const {
  return std::int64_t{g.out} / out_blocks_ * out_channels_ + g.out % out_blocks_ * 16;
}

// visit(offset in a partial gradient, offset in PyTorch's order) for the weights of one group, some
// steps at a time, so that either side is read and written line by line.
template <class Visit>
void DirectWeightGradient::ForWeights(const GradientGroup& g, Visit&& visit) const {
  constexpr int kSteps = 64;
  const int outs = OutputsOf(g);
  const std::int64_t out = FirstOutput(g);
  for (int begin = 0; begin < g.columns; begin += kSteps)
    for (int o = 0; o < outs; ++o)
      for (int s = begin; s < std::min(begin + kSteps, g.columns); ++s) {
        const std::int64_t tile = std::int64_t{kTileOfWeights} * (g.tile + s) + o;
        const std::int64_t* const places = places_.data() + 16 * s;
        const int values = forward_.step_values()[static_cast<std::size_t>(s)];
        for (int k = 0; k < values; ++k) visit(tile + 16 * k, (out + o) * inputs() + places[k]);
      }
}

void DirectWeightGradient::ToPlain(const GradientGroup& group, const float* partial,
                                   float* dw) const {
  if (!in_order_)
    return ForWeights(group, [&](std::int64_t from, std::int64_t to) { dw[to] = partial[from]; });
  TilesToRowsArgs a;
  a.tiles = partial + group.first_value(), a.rows = OutputsOf(group), a.values = inputs();
  a.out = dw + FirstOutput(group) * inputs(), a.row_step = inputs();
  kernels_.tiles_to_rows(a);
}
// visit(offset in the partial gradient's db, output channel)
template <class Visit>
void DirectWeightGradient::ForBias(Visit&& visit) const {
  for (int o = 0; o < geometry_.y.c; ++o)
    visit(geometry_.groups * group_values() + o / out_channels_ * out_blocks_ * 16 +
              o % out_channels_,
          o);
}
void DirectWeightGradient::BiasToPlain(const float* partial, float* db) const {
  ForBias([&](std::int64_t from, int o) { db[o] = partial[from]; });
}
void DirectWeightGradient::AddPlain(const float* dw, const float* db, bool first,
                                    float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  for (const GradientGroup& group : groups_)
    ForWeights(group, [&](std::int64_t to, std::int64_t from) { partial[to] += dw[from]; });
  if (db != nullptr) ForBias([&](std::int64_t to, int o) { partial[to] += db[o]; });
}

}  // namespace ada::backend::cpu
