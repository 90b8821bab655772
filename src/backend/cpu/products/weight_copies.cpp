// Rounding and reordering of weights; see weight_copies.h.
#include "backend/cpu/products/weight_copies.h"

#include "backend/cpu/ops/blocks.h"

namespace ada::backend::cpu {

WeightCopies::WeightCopies(const Context& context, const ProductGeometry& geometry,
                           const ProductSpec& spec, bool moments)
    : context_(context),
      geometry_(geometry),
      master_(spec.w),
      stats_(RoundingStats::OfParameter(spec.w_format, spec.w.shape.numel(), spec.w_style,
                                        spec.w_stats, moments ? &moments_ : nullptr)) {
  if (stats_.rounds()) rounded_.resize(static_cast<std::size_t>(master_.shape.numel()));
  bytes_ = static_cast<std::ptrdiff_t>(rounded_.size() * sizeof(float));
  context_.scratch.CountOwn(bytes_);
}

WeightCopies::~WeightCopies() { context_.scratch.CountOwn(-bytes_); }

const float* WeightCopies::plain() const {
  return rounded_.empty() ? master_.f32() : rounded_.data();
}

const float* WeightCopies::Add(const std::shared_ptr<const WeightLayout>& layout) {
  for (const Copy& copy : copies_)
    if (SameLayout(*copy.layout, *layout)) return copy.values.data();
  Copy copy;
  copy.layout = layout;
  const std::size_t bytes = WholeLines(LayoutBytes(*layout));
  copy.values.resize(bytes / sizeof(float));
  context_.scratch.CountOwn(static_cast<std::ptrdiff_t>(bytes));
  bytes_ += static_cast<std::ptrdiff_t>(bytes);
  if (refreshed_) ToLayout(geometry_, plain(), *layout, copy.values.data());
  copies_.push_back(std::move(copy));
  return copies_.back().values.data();
}

void WeightCopies::Refresh(const Pass& pass) {
  if (!rounded_.empty() || stats_.wanted()) {
    ForSegments(
        context_, master_.shape.numel(),
        [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
          const Rounding rounding = stats_.For(pass, segment);
          float* in = master_.f32() + first;
          if (rounded_.empty())
            context_.kernels.inspect({in, Storage::kF32}, n, rounding);
          else
            context_.kernels.round(in, 1.0f, {rounded_.data() + first, Storage::kF32}, n, rounding);
        });
    stats_.Finish(pass);
  }
  context_.pool.For(static_cast<std::int64_t>(copies_.size()), [&](std::int64_t i, int) {
    Copy& copy = copies_[static_cast<std::size_t>(i)];
    ToLayout(geometry_, plain(), *copy.layout, copy.values.data());
  });
  refreshed_ = true;
}

}  // namespace ada::backend::cpu
