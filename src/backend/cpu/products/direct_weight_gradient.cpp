// See direct_weight_gradient.h.
#include "backend/cpu/products/direct_weight_gradient.h"

#include <algorithm>

#include "backend/cpu/context.h"

namespace ada::backend::cpu {
namespace {

constexpr int kTileOfWeights = 256;  // values
// Sums pass through memory once a strip: so many positions make that cheap.
constexpr int kStripPositions = 128;

}  // namespace

DirectWeightGradient::DirectWeightGradient(const TileKernels& kernels,
                                           const ProductGeometry& geometry, int block)
    : kernels_(kernels),
      geometry_(geometry),
      forward_(TileConvolution::ForGradient(kernels, geometry, block)),
      weights_(forward_.StepWeights()),
      out_blocks_(static_cast<int>((geometry.y.c + 15) / 16)) {
  const auto positions = static_cast<int>(geometry.y.w) * forward_.frame().together;
  strip_rows_ = std::max(1, kStripPositions / positions);
  const auto steps = static_cast<int>(weights_.size());
  for (int out = 0; out < out_blocks_; ++out) groups_.push_back({1, steps, out, 0, out * steps});
}

DirectWeightGradient::Layout DirectWeightGradient::LayoutOf(int images) const {
  const TileFrame& frame = forward_.frame();
  Layout layout;
  const int images_of_group = frame.together * forward_.images_in_record();
  layout.groups = (images + images_of_group - 1) / images_of_group;
  const std::int64_t rows = layout.groups * geometry_.y.h;
  layout.dy_plane_bytes = rows * geometry_.y.w * frame.together * 64;
  layout.dy = static_cast<std::size_t>(frame.blocks * forward_.PlaneBytes(images));
  layout.rows = layout.dy + static_cast<std::size_t>(out_blocks_ * layout.dy_plane_bytes);
  layout.bytes = layout.rows + WholeLines(static_cast<std::size_t>(rows) * sizeof(std::int64_t));
  return layout;
}

std::size_t DirectWeightGradient::scratch_bytes(int images) const {
  return LayoutOf(std::min(images, forward_.images_at_once())).bytes;
}
std::int64_t DirectWeightGradient::partial_values() const {
  const auto steps = static_cast<std::int64_t>(weights_.size());
  return out_blocks_ * (steps * kTileOfWeights + (geometry_.bias ? 16 : 0));
}

void DirectWeightGradient::Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                               std::byte* scratch) const {
  const int most = forward_.images_at_once();
  for (int i = 0; i < images; i += most)
    RunSome(Advance(x, i * geometry_.x.per_image()), Advance(dy, i * geometry_.y.per_image()),
            std::min(most, images - i), first && i == 0, partial, scratch);
}

void DirectWeightGradient::PackDy(TensorSpan dy, int images, const Layout& layout,
                                  std::byte* records) const {
  PackRecordsArgs pack;
  pack.frame.together = forward_.frame().together;
  pack.frame.rows = static_cast<int>(geometry_.y.h);
  pack.frame.columns = static_cast<int>(geometry_.y.w);
  pack.frame.block = 16, pack.frame.blocks = out_blocks_;
  pack.x = dy, pack.images = images, pack.image_pairs = forward_.images_in_record() == 2;
  pack.h = pack.frame.rows, pack.w = pack.frame.columns, pack.c = static_cast<int>(geometry_.y.c);
  pack.records = records, pack.plane_bytes = layout.dy_plane_bytes;
  kernels_.pack_records(pack);
}

void DirectWeightGradient::RunSome(TensorSpan x, TensorSpan dy, int images, bool first,
                                   float* partial, std::byte* scratch) const {
  const Layout layout = LayoutOf(images);
  const TileFrame& frame = forward_.frame();
  forward_.PackRecords(x, images, scratch + layout.x);
  PackDy(dy, images, layout, scratch + layout.dy);
  auto* rows = reinterpret_cast<std::int64_t*>(scratch + layout.rows);
  const std::int64_t row_records = std::int64_t{frame.columns} * frame.together;
  int count = 0;
  for (int group = 0; group < layout.groups; ++group)
    for (int row = 0; row < geometry_.y.h; ++row)
      rows[count++] =
          (group * frame.group_records() + row * forward_.row_step() * row_records) * 64;
  const std::vector<std::int64_t> steps = forward_.Steps(images);
  DirectGradientArgs a;
  a.x = scratch + layout.x, a.rows_of_x = rows;
  a.steps = steps.data(), a.step_values = forward_.step_values().data();
  a.step_count = static_cast<int>(steps.size());
  a.dy = scratch + layout.dy, a.dy_plane_bytes = layout.dy_plane_bytes;
  a.out_blocks = out_blocks_, a.rows = count;
  a.positions = static_cast<int>(geometry_.y.w) * frame.together;
  a.strip_rows = strip_rows_;
  a.first = first, a.bias = geometry_.bias, a.partial = partial;
  kernels_.direct_gradient(a);
}

// visit(offset in a partial gradient, offset in PyTorch's order) for the weights of one group.
template <class Visit>
void DirectWeightGradient::ForWeights(const GradientGroup& g, Visit&& visit) const {
  const std::int64_t channels = geometry_.x.c;
  const std::int64_t taps =
      geometry_.linear ? geometry_.x.h * geometry_.x.w : geometry_.w.h * geometry_.w.w;
  const int outs = std::min(16, static_cast<int>(geometry_.y.c) - 16 * g.out);
  for (int s = 0; s < g.columns; ++s) {
    const TileConvolution::StepWeight& weight = weights_[static_cast<std::size_t>(s)];
    const int values = forward_.step_values()[static_cast<std::size_t>(s)];
    const std::int64_t tile = std::int64_t{kTileOfWeights} * (g.tile + s);
    for (int k = 0; k < values; ++k) {
      // Of a window the values are those of its taps, one after the other.
      const std::int64_t channel = weight.channel + k;
      const std::int64_t in = channel % channels * taps + weight.weight + channel / channels;
      for (int o = 0; o < outs; ++o)
        visit(tile + 16 * k + o, (std::int64_t{16} * g.out + o) * channels * taps + in);
    }
  }
}

void DirectWeightGradient::ToPlain(const GradientGroup& group, const float* partial,
                                   float* dw) const {
  ForWeights(group, [&](std::int64_t from, std::int64_t to) { dw[to] = partial[from]; });
}
void DirectWeightGradient::BiasToPlain(const float* partial, float* db) const {
  std::copy_n(partial + partial_values() - std::int64_t{16} * out_blocks_, geometry_.y.c, db);
}
void DirectWeightGradient::AddPlain(const float* dw, const float* db, bool first,
                                    float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  for (const GradientGroup& group : groups_)
    ForWeights(group, [&](std::int64_t to, std::int64_t from) { partial[to] += dw[from]; });
  if (db == nullptr) return;
  float* bias = partial + partial_values() - std::int64_t{16} * out_blocks_;
  for (std::int64_t o = 0; o < geometry_.y.c; ++o) bias[o] += db[o];
}

}  // namespace ada::backend::cpu
