// See weight_copies.h.
#include "backend/cuda/products/weight_copies.h"

#include "backend/cuda/launch.h"

namespace ada::backend::cuda {
namespace {

Storage StorageOf(const ProductSpec& spec) {
  return spec.w_style.own_scale != nullptr ? Storage::kF32 : StorageFor(spec.w_format);
}

}  // namespace

WeightCopies::WeightCopies(const Context& context, const ProductSpec& spec, TensorMoments* moments)
    : context_(context),
      master_(spec.w),
      order_{spec.w.shape.c, spec.w.shape.h * spec.w.shape.w},
      storage_(StorageOf(spec)),
      stats_(RoundingStats::OfParameter(context, spec.w_format, Storage::kF32, spec.w.shape.numel(),
                                        spec.w_style, spec.w_stats, moments)) {
  if (stats_.rounds()) rounded_ = context.Allocate<float>(spec.w.shape.numel());
}

void WeightCopies::Refresh(const Pass& pass) {
  const TensorSpan master = SpanOf(master_);
  if (rounded_ != nullptr)
    stats_.Round(pass, {rounded_, Storage::kF32}, StoredValues{master});
  else if (stats_.wanted())
    stats_.Count(pass, master);
  for (const Copy& copy : copies_)
    if (!copy.late) Pack(copy);
}

TensorSpan WeightCopies::Packed(Storage storage) {
  // Without taps the two orders are one.
  if (storage == Storage::kF32 && order_.taps == 1)
    return {const_cast<float*>(plain()), Storage::kF32};
  for (const Copy& copy : copies_) {
    if (copy.span.storage != storage) continue;
    if (copy.late) Pack(copy);
    return copy.span;
  }
  const std::int64_t bytes = master_.shape.numel() * static_cast<std::int64_t>(BytesOf(storage));
  copies_.push_back({{context_.Allocate<std::byte>(bytes), storage}, sealed_});
  Pack(copies_.back());
  return copies_.back().span;
}

void WeightCopies::Pack(const Copy& copy) const {
  ForEach(context_.stream, master_.shape.numel(), PackWeights{plain(), copy.span, order_});
}

}  // namespace ada::backend::cuda
