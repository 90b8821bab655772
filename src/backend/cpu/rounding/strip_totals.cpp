// Sums strips in fp32 as their images come, and adds up the strips in double, in their order.
#include "backend/cpu/rounding/strip_totals.h"

#include <algorithm>

#include "backend/formulas.h"

namespace ada::backend::cpu {

StripTotals::StripTotals(const Context& context, const Shape& shape)
    : strips_{shape.h * shape.w}, channels_(shape.c) {
  sums_.resize(static_cast<std::size_t>(shape.n * strips_.per_image() * channels_));
  totals_.resize(static_cast<std::size_t>(channels_));
  context.scratch.CountOwn(static_cast<std::ptrdiff_t>(sums_.size() * sizeof(float)));
}

void StripTotals::Add(const Context& context, const float* a, const float* b, std::int64_t image,
                      std::int64_t n) {
  const std::int64_t per_image = strips_.per_image();
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t strip = 0; strip < per_image; ++strip) {
      const std::int64_t at = (i * strips_.pixels + strips_.Begin(strip)) * channels_;
      context.kernels.strip_sums(a + at, b == nullptr ? nullptr : b + at, strips_.Size(strip),
                                 channels_,
                                 sums_.data() + ((image + i) * per_image + strip) * channels_);
    }
}

const std::vector<double>& StripTotals::Of(std::int64_t image, std::int64_t n) {
  std::fill(totals_.begin(), totals_.end(), 0.0);
  const std::int64_t first = image * strips_.per_image(), end = (image + n) * strips_.per_image();
  for (std::int64_t strip = first; strip < end; ++strip)
    for (std::int64_t c = 0; c < channels_; ++c)
      totals_[static_cast<std::size_t>(c)] +=
          static_cast<double>(sums_[static_cast<std::size_t>(strip * channels_ + c)]);
  return totals_;
}

void StripTotals::Unscaled(std::int64_t rows, float scale, bool accumulate, float* value) {
  const std::vector<double>& totals = Of(0, rows);
  for (std::int64_t c = 0; c < channels_; ++c) {
    const float sum = UnscaledSum(totals[static_cast<std::size_t>(c)], scale);
    value[c] = accumulate ? value[c] + sum : sum;
  }
}

void StripTotals::UnscaledOfAll(std::int64_t rows, float scale, bool accumulate, float* value) {
  double total = 0;
  for (const double channel : Of(0, rows)) total += channel;
  const float sum = UnscaledSum(total, scale);
  *value = accumulate ? *value + sum : sum;
}

}  // namespace ada::backend::cpu
