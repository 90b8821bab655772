// Rounding and reordering of weights; see weight_copies.h.
#include "backend/cpu/weight_copies.h"

#include <algorithm>
#include <new>

namespace ada::backend::cpu {
namespace {
constexpr std::int64_t kSegment = 16384;  // values of one BlockStats
std::int64_t Segments(const Tensor& t) { return (t.shape.numel() + kSegment - 1) / kSegment; }
}  // namespace

WeightCopies::WeightCopies(const Context& context, const ProductGeometry& geometry,
                           const Tensor& master, const NumberFormat& format, TensorStats* stats,
                           bool moments)
    : context_(context),
      geometry_(geometry),
      master_(master),
      format_(format),
      notes_(stats, moments ? &moments_ : nullptr, Segments(master)) {
  if (!(format == kFp32)) rounded_.resize(static_cast<std::size_t>(master.shape.numel()));
  bytes_ = static_cast<std::ptrdiff_t>(rounded_.size() * sizeof(float));
  context_.scratch.CountOwn(bytes_);
}

WeightCopies::~WeightCopies() { context_.scratch.CountOwn(-bytes_); }

const float* WeightCopies::plain() const {
  return rounded_.empty() ? master_.f32() : rounded_.data();
}

const float* WeightCopies::Add(const std::shared_ptr<const WeightLayout>& layout) {
  for (const Copy& copy : copies_)
    if (SameLayout(*copy.layout, *layout)) return copy.f32();
  Copy copy;
  copy.layout = layout;
  const std::size_t bytes = (LayoutBytes(*layout) + 63) / 64 * 64;
  copy.data.reset(static_cast<std::byte*>(std::aligned_alloc(64, bytes)));
  if (!copy.data) throw std::bad_alloc();
  context_.scratch.CountOwn(static_cast<std::ptrdiff_t>(bytes));
  bytes_ += static_cast<std::ptrdiff_t>(bytes);
  ToLayout(geometry_, plain(), *layout, copy.f32());
  copies_.push_back(std::move(copy));
  return copies_.back().f32();
}

void WeightCopies::Refresh(bool count) {
  Pass pass;
  pass.count = count;
  const std::int64_t numel = master_.shape.numel();
  if (!rounded_.empty() || notes_.wanted()) {
    context_.pool.For(Segments(master_), [&](std::int64_t segment, int) {
      const std::int64_t first = segment * kSegment, n = std::min(kSegment, numel - first);
      const Rounding rounding = notes_.For(format_, pass, segment);
      const float* in = master_.f32() + first;
      if (rounded_.empty())
        context_.kernels.inspect({const_cast<float*>(in), Storage::kF32}, n, rounding);
      else
        context_.kernels.round(in, 1.0f, {rounded_.data() + first, Storage::kF32}, n, rounding);
    });
    notes_.Finish(pass, Segments(master_));
  }
  context_.pool.For(static_cast<std::int64_t>(copies_.size()), [&](std::int64_t i, int) {
    const Copy& copy = copies_[static_cast<std::size_t>(i)];
    ToLayout(geometry_, plain(), *copy.layout, copy.f32());
  });
}

}  // namespace ada::backend::cpu
