// The chunk loops of convolution and linear layers.
//
//   forward chunk:   x --widen--> fp32 --product--> fp32 --round, count--> y --> channel moments
//   backward chunk:  dy, x --widen--> fp32 --+--> partial dw (of the chunk's group)
//                                            +--> dx in fp32 --times alpha, round, count--> dx
//   (the authors' program instead:  dy --times alpha, round--> product --round, count--> dx)
#include "backend/cpu/product_op.h"

#include <algorithm>

#include "backend/cpu/block_loop.h"
#include "core/error.h"

namespace ada::backend::cpu {
namespace {

std::size_t Aligned(std::size_t values) { return (values + 15) / 16 * 16; }
// The authors multiply dy, which rounds. exact_range is not theirs: it looks at dx before alpha.
bool AlphaComesFirst(const scaling::LayerRule& rule) {
  return rule.reference && rule.method != scaling::LayerMethod::kExactRange;
}
bool WantsMoments(const ProductSpec& spec) {
  return spec.scaler != nullptr && scaling::MayNeedMoments(spec.scaler->rule);
}

}  // namespace

ProductOp::ProductOp(const Context& context, const ProductSpec& spec,
                     const ProductGeometry& geometry)
    : context_(context),
      spec_(spec),
      geometry_(geometry),
      chunk_(ChunkImages(spec.x.shape, spec.y.shape)),
      block_x_(BlockImages(spec.x.shape)),
      block_y_(BlockImages(spec.y.shape)),
      weights_(context, geometry, spec, WantsMoments(spec)),
      y_notes_(spec.y, spec.y_style, spec.y_stats),
      dx_notes_(spec.dx),
      dw_notes_(
          Notes::OfParameter(spec.dw_format, spec.w.shape.numel(), spec.dw_style, spec.dw_stats)),
      tail_(context.pool.size()) {
  SetFor(std::min<std::int64_t>(chunk_, spec.x.shape.n));
}

ProductOp::Set& ProductOp::SetFor(std::int64_t images) {
  const auto found = sets_.find(images);
  if (found != sets_.end()) return found->second;
  Set& set = sets_[images];
  set.products.resize(static_cast<std::size_t>(context_.pool.size()));
  context_.pool.Each([&](int worker) {
    set.products[static_cast<std::size_t>(worker)] =
        Product::Make(geometry_, static_cast<int>(images), gradient_layout_.get());
  });
  const Product& product = *set.products[0];
  set.forward_weights = weights_.Add(product.forward_layout());
  if (product.data_layout()) set.data_weights = weights_.Add(product.data_layout());
  if (product.gradient_layout() && !gradient_layout_) {
    gradient_layout_ = product.gradient_layout();
    layout_values_ = Aligned(LayoutBytes(*gradient_layout_) / 4);
  }
  pad_bytes_ = std::max(pad_bytes_, product.scratchpad_bytes());
  Reserve();
  return set;
}

void ProductOp::Reserve() {
  const auto images = static_cast<std::size_t>(chunk_);
  const std::size_t x = Aligned(images * static_cast<std::size_t>(spec_.x.shape.per_image()));
  const std::size_t y = Aligned(images * static_cast<std::size_t>(spec_.y.shape.per_image()));
  const std::size_t db = Aligned(static_cast<std::size_t>(spec_.w.shape.n));
  const std::size_t own = (2 * x + y + layout_values_ + db) * 4 + pad_bytes_ + 64;
  const std::size_t groups = 8;
  const std::size_t plain = Aligned(static_cast<std::size_t>(spec_.w.shape.numel()));
  context_.scratch.Reserve(own,
                           geometry_.training ? (groups * (layout_values_ + db) + plain) * 4 : 0);
}

ProductOp::Buffers ProductOp::BuffersOf(int worker) const {
  Buffers b;
  const auto images = static_cast<std::size_t>(chunk_);
  b.x = reinterpret_cast<float*>(context_.scratch.worker(worker));
  b.y = b.x + Aligned(images * static_cast<std::size_t>(spec_.x.shape.per_image()));
  b.dx = b.y + Aligned(images * static_cast<std::size_t>(spec_.y.shape.per_image()));
  b.dw = b.dx + Aligned(images * static_cast<std::size_t>(spec_.x.shape.per_image()));
  b.db = b.dw + layout_values_;
  b.pad = reinterpret_cast<std::byte*>(b.db + Aligned(static_cast<std::size_t>(spec_.w.shape.n)));
  return b;
}

ProductOp::Partial ProductOp::PartialOf(std::int64_t group) const {
  const std::size_t db = Aligned(static_cast<std::size_t>(spec_.w.shape.n));
  float* begin = reinterpret_cast<float*>(context_.scratch.shared()) +
                 static_cast<std::size_t>(group) * (layout_values_ + db);
  return {begin, begin + layout_values_};
}

const float* ProductOp::AsF32(const Tensor& tensor, std::int64_t image, std::int64_t images,
                              float* buffer) const {
  const Piece piece = At(tensor, image);
  if (piece.storage == Storage::kF32) return static_cast<const float*>(piece.data);
  context_.kernels.widen(piece, buffer, images * tensor.shape.per_image());
  return buffer;
}

void ProductOp::Forward(const Pass& pass) {
  const std::int64_t chunks = BlockCount(pass.rows, chunk_);
  SetFor(std::min<std::int64_t>(chunk_, pass.rows));
  SetFor(pass.rows - (chunks - 1) * chunk_);
  context_.pool.For(chunks, [&](std::int64_t chunk, int worker) {
    const std::int64_t image = chunk * chunk_;
    ForwardChunk(pass, image, std::min<std::int64_t>(chunk_, pass.rows - image), worker);
  });
  y_notes_.Finish(pass);
}

void ProductOp::ForwardChunk(const Pass& pass, std::int64_t image, std::int64_t images,
                             int worker) {
  const Set& set = sets_.at(images);
  const Buffers b = BuffersOf(worker);
  const float* bias = spec_.b ? spec_.b.f32() : nullptr;
  set.products[static_cast<std::size_t>(worker)]->Forward(AsF32(spec_.x, image, images, b.x),
                                                          set.forward_weights, bias, b.y, b.pad);
  RoundOutput(pass, b.y, image, images);
}

void ProductOp::RoundOutput(const Pass& pass, const float* y, std::int64_t image,
                            std::int64_t images) {
  const Shape& shape = spec_.y.shape;
  for (std::int64_t i = 0; i < images; i += block_y_) {
    const std::int64_t n = std::min<std::int64_t>(block_y_, images - i),
                       block = (image + i) / block_y_;
    const Piece out = At(spec_.y, image + i);
    context_.kernels.round(y + i * shape.per_image(), 1.0f, out, n * shape.per_image(),
                           y_notes_.For(pass, block));
    if (spec_.y_moments.mean != nullptr && pass.training)
      context_.kernels.channel_moments(out, n * shape.h * shape.w, shape.c,
                                       spec_.y_moments.mean + block * shape.c,
                                       spec_.y_moments.m2 + block * shape.c);
  }
}

float ProductOp::DecideAlpha(const Pass& pass) {
  if (!spec_.dx) return 1;
  ADA_CHECK(spec_.scaler != nullptr);
  const scaling::Needs needs = scaling::NeedsOf(*spec_.scaler);
  scaling::Observation seen;
  if (needs.moments) {
    ADA_CHECK(spec_.dy.moments != nullptr);
    seen.dy = *spec_.dy.moments, seen.w = weights_.moments();
  }
  if (needs.products) {
    const std::int64_t out = spec_.w.shape.n;
    ObserveProducts(MagnitudesOfImages(context_, spec_.dy.tensor, pass.rows),
                    MagnitudesOfRows(context_, weights_.plain(), out, spec_.w.shape.numel() / out),
                    seen);
  }
  scaling::Decide(*spec_.scaler, seen, *spec_.dy.scale);
  *spec_.dx.scale = spec_.scaler->decision.scale_out;
  return spec_.scaler->decision.alpha;
}

void ProductOp::Backward(const Pass& pass) {
  const float alpha = DecideAlpha(pass);
  tail_.Begin(spec_.dx ? spec_.scaler : nullptr);
  const std::int64_t chunks = BlockCount(pass.rows, chunk_);
  const std::int64_t per_group = GroupChunks(chunks, spec_.w.shape.numel());
  const std::int64_t groups = BlockCount(chunks, static_cast<int>(per_group));
  (void)context_.scratch.shared();  // made before the workers ask for it
  context_.pool.For(groups, [&](std::int64_t group, int worker) {
    const std::int64_t begin = group * per_group, end = std::min(begin + per_group, chunks);
    for (std::int64_t chunk = begin; chunk < end; ++chunk) {
      const std::int64_t image = chunk * chunk_;
      BackwardChunk(pass, image, std::min<std::int64_t>(chunk_, pass.rows - image), worker,
                    PartialOf(group), chunk == begin, alpha);
    }
  });
  dx_notes_.Finish(pass);
  tail_.Finish(spec_.scaler);
  FinishWeightGradient(pass, groups);
}

void ProductOp::BackwardChunk(const Pass& pass, std::int64_t image, std::int64_t images, int worker,
                              const Partial& partial, bool first, float alpha) {
  const Set& set = sets_.at(images);
  Product& product = *set.products[static_cast<std::size_t>(worker)];
  const Buffers b = BuffersOf(worker);
  const float* dy = AsF32(spec_.dy.tensor, image, images, b.y);
  const float* x = AsF32(spec_.x, image, images, b.x);
  product.BackwardWeights(x, dy, first ? partial.dw : b.dw, first ? partial.db : b.db, b.pad);
  if (!first) {
    context_.kernels.accumulate(b.dw, partial.dw,
                                static_cast<std::int64_t>(LayoutBytes(*gradient_layout_) / 4));
    if (spec_.b) context_.kernels.accumulate(b.db, partial.db, spec_.w.shape.n);
  }
  if (spec_.dx) DataGradient(pass, dy, image, images, worker, alpha);
}

void ProductOp::DataGradient(const Pass& pass, const float* dy, std::int64_t image,
                             std::int64_t images, int worker, float alpha) {
  const Set& set = sets_.at(images);
  const Buffers b = BuffersOf(worker);
  if (AlphaComesFirst(spec_.scaler->rule) && alpha != 1) {
    context_.kernels.round(dy, alpha, {b.y, Storage::kF32}, images * spec_.y.shape.per_image(),
                           Quietly(spec_.dy.tensor.format));
    dy = b.y, alpha = 1;
  }
  set.products[static_cast<std::size_t>(worker)]->BackwardData(dy, set.data_weights, b.dx, b.pad);
  const std::int64_t per_image = spec_.x.shape.per_image();
  for (std::int64_t i = 0; i < images; i += block_x_) {
    const std::int64_t n = std::min<std::int64_t>(block_x_, images - i) * per_image;
    const float* dx = b.dx + i * per_image;
    tail_.Add(context_.kernels, dx, n, worker);
    context_.kernels.round(dx, alpha, At(spec_.dx.tensor, image + i), n,
                           dx_notes_.For(pass, (image + i) / block_x_));
  }
}

}  // namespace ada::backend::cpu
