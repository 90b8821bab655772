// See onednn_chunks.h.
//
//   forward:   x --widen--> fp32 --product--> fp32 --round, count--> y --> channel moments
//   backward:  dy, x --widen--> fp32 --+--> partial dw
//                                      +--> dx in fp32 --times alpha, round, count--> dx
#include "backend/cpu/matmul/plan/onednn_chunks.h"

#include <algorithm>

#include "backend/cpu/rounding/blocks.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

std::size_t Aligned(std::int64_t values) {
  return static_cast<std::size_t>((values + 15) / 16 * 16);
}

// values = values * factor + bias, by channel; bias null: there is none.
void MultiplyAndAdd(const Shape& shape, std::int64_t images, float factor, const float* bias,
                    float* values) {
  const std::int64_t pixels = images * shape.h * shape.w;
  for (std::int64_t p = 0; p < pixels; ++p, values += shape.c)
    for (std::int64_t c = 0; c < shape.c; ++c)
      values[c] = values[c] * factor + (bias != nullptr ? bias[c] : 0);
}

}  // namespace

OnednnChunks::OnednnChunks(const Context& context, const MatmulSpec& spec,
                           const MatmulGeometry& geometry, WeightCopies& weights,
                           MatmulRounding& rounding, int most, std::size_t offset)
    : context_(context),
      spec_(spec),
      geometry_(geometry),
      weights_(weights),
      rounding_(rounding),
      most_(most),
      offset_(offset),
      no_bias_(static_cast<std::size_t>(spec.y.shape.c)) {
  Prepare(std::min<std::int64_t>(most, spec.y.shape.n));
}

void OnednnChunks::Prepare(std::int64_t images) {
  if (sets_.count(images) != 0) return;
  Set& set = sets_[images];
  set.matmuls.resize(static_cast<std::size_t>(context_.pool.size()));
  context_.pool.Each([&](int worker) {
    set.matmuls[static_cast<std::size_t>(worker)] =
        Matmul::Make(geometry_, static_cast<int>(images), gradient_layout_.get());
  });
  const Matmul& matmul = *set.matmuls[0];
  set.forward_weights = weights_.Add(WeightUse::kForward, matmul.forward_layout());
  if (matmul.data_layout()) set.data_weights = weights_.Add(WeightUse::kData, matmul.data_layout());
  if (matmul.gradient_layout() && !gradient_layout_) gradient_layout_ = matmul.gradient_layout();
  pad_bytes_ = std::max(pad_bytes_, matmul.scratchpad_bytes());
  Reserve();
}

std::int64_t OnednnChunks::layout_values() const {
  if (!gradient_layout_) return 0;
  return static_cast<std::int64_t>(
      Aligned(static_cast<std::int64_t>(LayoutBytes(*gradient_layout_) / 4)));
}
std::int64_t OnednnChunks::partial_values() const {
  return layout_values() + static_cast<std::int64_t>(Aligned(spec_.y.shape.c));
}

void OnednnChunks::Reserve() {
  const std::size_t x = Aligned(most_ * spec_.x.shape.per_image());
  const std::size_t y = Aligned(most_ * spec_.y.shape.per_image());
  const auto dw = static_cast<std::size_t>(partial_values());
  context_.scratch.Reserve(offset_ + (2 * x + y + dw) * 4 + pad_bytes_ + 64, 0);
}

// One after the other in the worker's scratch memory, each a multiple of 64 bytes.
OnednnChunks::Buffers OnednnChunks::BuffersOf(int worker) const {
  const std::size_t x = Aligned(most_ * spec_.x.shape.per_image());
  Buffers b;
  b.x = reinterpret_cast<float*>(context_.scratch.worker(worker) + offset_);
  b.y = b.x + x;
  b.dx = b.y + Aligned(most_ * spec_.y.shape.per_image());
  b.dw = b.dx + x;
  b.pad = reinterpret_cast<std::byte*>(b.dw + partial_values());
  return b;
}

Matmul& OnednnChunks::MatmulFor(const Chunk& chunk) {
  return *sets_.at(chunk.images).matmuls[static_cast<std::size_t>(chunk.worker)];
}

const float* OnednnChunks::AsF32(const TensorSpan& span, std::int64_t values, float* buffer) const {
  if (span.storage == Storage::kF32) return static_cast<const float*>(span.data);
  context_.kernels.widen(span, buffer, values);
  return buffer;
}

// A factor of the sums has to come before the bias, which oneDNN would add first.
bool OnednnChunks::Forward(const Chunk& chunk, const TensorSpan& x) {
  const Buffers b = BuffersOf(chunk.worker);
  const float factor = rounding_.y_factor();
  const float* bias = spec_.b ? spec_.b.f32() : nullptr;
  MatmulFor(chunk).Forward(AsF32(x, chunk.images * spec_.x.shape.per_image(), b.x),
                           sets_.at(chunk.images).forward_weights,
                           factor == 1 ? bias : no_bias_.data(), b.y, b.pad);
  if (factor != 1) MultiplyAndAdd(spec_.y.shape, chunk.images, factor, bias, b.y);
  rounding_.RoundY(chunk, b.y);
  return true;
}

// oneDNN overwrites dw: only the first chunk of a group may write to the partial gradient itself.
bool OnednnChunks::WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy,
                                  bool first, float* partial) {
  const Buffers b = BuffersOf(chunk.worker);
  const float* wide_x = AsF32(x, chunk.images * spec_.x.shape.per_image(), b.x);
  const float* wide_dy = AsF32(dy, chunk.images * spec_.y.shape.per_image(), b.y);
  float* dw = first ? partial : b.dw;
  MatmulFor(chunk).BackwardWeights(wide_x, wide_dy, dw, dw + layout_values(), b.pad);
  if (first) return true;
  context_.kernels.accumulate(dw, partial,
                              static_cast<std::int64_t>(LayoutBytes(*gradient_layout_) / 4));
  if (spec_.b)
    context_.kernels.accumulate(dw + layout_values(), partial + layout_values(), spec_.y.shape.c);
  return true;
}

bool OnednnChunks::DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) {
  const Buffers b = BuffersOf(chunk.worker);
  const float* wide = AsF32(dy, chunk.images * spec_.y.shape.per_image(), b.y);
  MatmulFor(chunk).BackwardData(wide, sets_.at(chunk.images).data_weights, b.dx, b.pad);
  if (rounding_.dx_factor() != 1)
    MultiplyAndAdd(spec_.x.shape, chunk.images, rounding_.dx_factor(), nullptr, b.dx);
  rounding_.RoundDx(chunk, b.dx, alpha);
  return true;
}

bool OnednnChunks::Sum(float* partials, std::int64_t count, float* dw, float* db) const {
  ForSegments(
      context_, partial_values(), [&](std::int64_t first, std::int64_t n, std::int64_t, int) {
        for (std::int64_t i = 1; i < count; ++i)
          context_.kernels.accumulate(partials + i * partial_values() + first, partials + first, n);
      });
  FromLayout(geometry_, *gradient_layout_, partials, dw);
  if (db != nullptr) std::copy_n(partials + layout_values(), spec_.y.shape.c, db);
  std::uint32_t largest = context_.kernels.largest(dw, spec_.w.shape.numel());
  if (db != nullptr) largest = std::max(largest, context_.kernels.largest(db, spec_.y.shape.c));
  return largest < kInfinityBits;
}

void OnednnChunks::AddPlain(const float* dw, const float* db, bool first, float* partial) const {
  std::vector<float> in_layout(static_cast<std::size_t>(layout_values()));
  ToLayout(geometry_, dw, *gradient_layout_, in_layout.data());
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  context_.kernels.accumulate(in_layout.data(), partial, layout_values());
  if (db != nullptr) context_.kernels.accumulate(db, partial + layout_values(), spec_.y.shape.c);
}

}  // namespace ada::backend::cpu
