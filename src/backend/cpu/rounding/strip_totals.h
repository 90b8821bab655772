// Sums over pixels by channel, cut into strips (backend/reductions.h).
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/reductions.h"

namespace ada::backend::cpu {

class StripTotals {
 public:
  StripTotals() = default;
  // Sums over tensors of this shape.
  StripTotals(const Context& context, const Shape& shape);
  // Sums a * b (b null: a) of images image .. image + n, which begin at a and b.
  void Add(const Context& context, const float* a, const float* b, std::int64_t image,
           std::int64_t n);
  // By channel, over images image .. image + n, in double. Valid until the next call.
  const std::vector<double>& Of(std::int64_t image, std::int64_t n);
  // value[c] = the sum over `rows` images without `scale`, added to it if `accumulate`.
  void Unscaled(std::int64_t rows, float scale, bool accumulate, float* value);
  // The same for all channels together, one after another.
  void UnscaledOfAll(std::int64_t rows, float scale, bool accumulate, float* value);

 private:
  Strips strips_;
  std::int64_t channels_ = 0;
  std::vector<float> sums_;  // [images, strips, c]
  std::vector<double> totals_;
};

}  // namespace ada::backend::cpu
