// Layers that add what they have learned of a token or a place: embedding, position embedding,
// class token.
#include <algorithm>
#include <cstring>
#include <vector>

#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/moved_values.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/widened_blocks.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/values/moves.h"

namespace ada::backend::cpu {
namespace {

class CpuEmbedding final : public Op {
 public:
  CpuEmbedding(const Context& context, const EmbeddingSpec& spec)
      : context_(context),
        spec_(spec),
        channels_(spec.w.shape.c),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dw_stats_(RoundingStats::OfParameter(spec.dw_format, spec.w.shape.numel(), spec.dw_style,
                                             spec.dw_stats)) {
    context.scratch.Reserve(
        std::max(BlockValues(spec.y.shape), static_cast<std::size_t>(2 * channels_)) *
            sizeof(float),
        0);
    if (!spec.dw) return;
    first_.resize(static_cast<std::size_t>(spec.w.shape.n) + 1);
    places_.resize(static_cast<std::size_t>(spec.x.shape.numel()));
    context.scratch.CountOwn(static_cast<std::ptrdiff_t>((first_.size() + places_.size()) * 4));
  }

  void Forward(const Pass& pass) override {
    const Shape& shape = spec_.y.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* values = reinterpret_cast<float*>(context_.scratch.worker(worker));
                const std::int32_t* tokens = Tokens() + image * spec_.x.shape.per_image();
                const std::int64_t places = n * spec_.x.shape.per_image();
                for (std::int64_t i = 0; i < places; ++i)
                  std::copy_n(spec_.w.f32() + tokens[i] * channels_, channels_,
                              values + i * channels_);
                context_.kernels.round(values, 1.0f, At(spec_.y, image), places * channels_,
                                       y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }

  void Backward(const Pass& pass) override {
    if (!spec_.dw) return;
    SortPlaces(pass.rows * spec_.x.shape.per_image());
    const std::int64_t tokens = spec_.w.shape.n;
    const std::int64_t each = std::max<std::int64_t>(1, kSegment / channels_);
    context_.pool.For((tokens + each - 1) / each, [&](std::int64_t i, int worker) {
      const std::int64_t end = std::min((i + 1) * each, tokens);
      for (std::int64_t token = i * each; token < end; ++token) SumToken(pass, token, worker);
    });
    if (!pass.part) FinishGradients(pass);
  }

  void FinishGradients(const Pass& pass) override {
    ForSegments(context_, spec_.w.shape.numel(),
                [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
                  dw_stats_.RoundInPlace(context_.kernels, pass, segment, spec_.dw.f32() + first,
                                         n);
                });
    dw_stats_.Finish(pass);
  }

 private:
  const std::int32_t* Tokens() const { return reinterpret_cast<const std::int32_t*>(spec_.x.data); }

  // The places of each token, in their order: those of token t are first_[t] .. first_[t + 1].
  void SortPlaces(std::int64_t count) {
    const std::int32_t* tokens = Tokens();
    std::fill(first_.begin(), first_.end(), 0);
    for (std::int64_t i = 0; i < count; ++i) ++first_[static_cast<std::size_t>(tokens[i])];
    std::int32_t sum = 0;
    for (std::int32_t& first : first_) {
      sum += first;
      first = sum;  // the end, of which the places below count down
    }
    for (std::int64_t i = count; i-- > 0;)
      places_[static_cast<std::size_t>(--first_[static_cast<std::size_t>(tokens[i])])] =
          static_cast<std::int32_t>(i);
  }

  void SumToken(const Pass& pass, std::int64_t token, int worker) {
    const bool adds = pass.accumulate || spec_.adds_dw;
    float* dw = spec_.dw.f32() + token * channels_;
    const std::int32_t begin = first_[static_cast<std::size_t>(token)];
    const std::int32_t end = first_[static_cast<std::size_t>(token) + 1];
    if (begin == end) {
      if (!adds) std::fill_n(dw, channels_, 0.0f);
      return;
    }
    auto* sum = reinterpret_cast<float*>(context_.scratch.worker(worker));
    for (std::int32_t i = begin; i < end; ++i) {
      const std::int64_t place = places_[static_cast<std::size_t>(i)];
      const TensorSpan dy = Advance(At(spec_.dy.tensor, 0), place * channels_);
      float* row = i == begin ? sum : sum + channels_;
      context_.kernels.widen(dy, row, channels_);
      if (i > begin) context_.kernels.accumulate(row, sum, channels_);
    }
    context_.kernels.unscale(sum, *spec_.dy.scale, adds, dw, channels_);
  }

  Context context_;
  EmbeddingSpec spec_;
  std::int64_t channels_;
  RoundingStats y_stats_, dw_stats_;
  std::vector<std::int32_t> first_, places_;
};

// dw[i] = the sum over images of dy's values first .. first + n, over S; in the order of images.
void SumImages(const Context& context, const Pass& pass, const Gradient& dy, std::int64_t n,
               float* dw) {
  constexpr std::int64_t kPart = 1024;
  context.pool.For((n + kPart - 1) / kPart, [&](std::int64_t part, int) {
    float sum[kPart], row[kPart];
    const std::int64_t first = part * kPart, count = std::min(kPart, n - first);
    std::fill_n(sum, count, 0.0f);
    for (std::int64_t image = 0; image < pass.rows; ++image) {
      context.kernels.widen(Advance(At(dy.tensor, image), first), row, count);
      context.kernels.accumulate(row, sum, count);
    }
    context.kernels.unscale(sum, *dy.scale, pass.accumulate, dw + first, count);
  });
}

class CpuPositionEmbedding final : public Op {
 public:
  CpuPositionEmbedding(const Context& context, const PositionEmbeddingSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(BlockValues(spec.y.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    const std::int64_t per_image = spec_.y.shape.per_image();
    RoundChanged(context_, pass, spec_.x, spec_.y, y_stats_,
                 [&](float* values, std::int64_t, std::int64_t n) {
                   for (std::int64_t i = 0; i < n; ++i)
                     context_.kernels.accumulate(spec_.w.f32(), values + i * per_image, per_image);
                 });
  }
  void Backward(const Pass& pass) override {
    const std::int64_t per_image = spec_.y.shape.per_image();
    if (spec_.dw) {
      SumImages(context_, pass, spec_.dy, per_image, spec_.dw.f32());
      if (!pass.accumulate)
        std::fill_n(spec_.dw.f32() + per_image, spec_.w.shape.numel() - per_image, 0.0f);
    }
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const Tensor &from = spec_.dy.tensor, &to = spec_.dx.tensor;
    if (from.data != to.data)
      std::memcpy(to.data, from.data,
                  static_cast<std::size_t>(pass.rows * per_image) * BytesOf(from.storage));
    InspectExact(context_, spec_.dx, dx_stats_, pass);
  }

 private:
  Context context_;
  PositionEmbeddingSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

class CpuClassToken final : public Op {
 public:
  CpuClassToken(const Context& context, const ClassTokenSpec& spec)
      : context_(context),
        spec_(spec),
        y_stats_(spec.y, spec.y_style, spec.y_stats),
        dx_stats_(spec.dx) {
    context.scratch.Reserve(BlockValues(spec.y.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    const Shape &in = spec_.x.shape, &out = spec_.y.shape;
    ForBlocks(context_, out, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* values = reinterpret_cast<float*>(context_.scratch.worker(worker));
                for (std::int64_t i = 0; i < n; ++i) {
                  float* to = values + i * out.per_image();
                  std::copy_n(spec_.w.f32(), out.c, to);
                  context_.kernels.widen(At(spec_.x, image + i), to + out.c, in.per_image());
                }
                context_.kernels.round(values, 1.0f, At(spec_.y, image), n * out.per_image(),
                                       y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    const std::int64_t channels = spec_.y.shape.c;
    if (spec_.dw) SumImages(context_, pass, spec_.dy, channels, spec_.dw.f32());
    if (!spec_.dx) return;
    *spec_.dx.scale = *spec_.dy.scale;
    const PartOfRuns rest = PartOf(spec_.y.shape, spec_.x.shape, 1, channels);
    MoveTensor(context_, pass, rest, spec_.dy.tensor, spec_.dx.tensor);
    InspectExact(context_, spec_.dx, dx_stats_, pass);
  }

 private:
  Context context_;
  ClassTokenSpec spec_;
  RoundingStats y_stats_, dx_stats_;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const EmbeddingSpec& s) {
  return std::make_unique<CpuEmbedding>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const PositionEmbeddingSpec& s) {
  return std::make_unique<CpuPositionEmbedding>(c, s);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ClassTokenSpec& s) {
  return std::make_unique<CpuClassToken>(c, s);
}

}  // namespace ada::backend::cpu
