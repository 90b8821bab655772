// See weight_gradient.h.
#include "backend/cuda/products/weight_gradient.h"

#include <algorithm>

#include "backend/cuda/kernels/products.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {
namespace {

// Enough runs to fill a device, long enough to be few.
std::int64_t RowsInRun(const Shape& dy) {
  constexpr std::int64_t kThreads = 65536;
  return std::clamp<std::int64_t>(dy.numel() / kThreads, 16, 1024);
}
std::int64_t Runs(std::int64_t rows, std::int64_t run) { return (rows + run - 1) / run; }

}  // namespace

WeightGradient::WeightGradient(const Context& context, const ProductSpec& spec)
    : context_(context),
      spec_(spec),
      stats_(RoundingStats::OfParameter(context, spec.dw_format, Storage::kF32,
                                        spec.w.shape.numel(), spec.dw_style, spec.dw_stats)),
      run_(RowsInRun(spec.y.shape)) {}

void WeightGradient::Store(const Pass& pass, const float* sums, std::int64_t added_channels) const {
  const Shape& w = spec_.w.shape;
  const UnscaledGradient gradient{sums,
                                  {w.c, w.h * w.w, w.c + added_channels},
                                  spec_.dy.scale,
                                  spec_.dw.f32(),
                                  pass.accumulate,
                                  spec_.reference && stats_.rounds(),
                                  GridOf(spec_.dw_format)};
  stats_.Round(pass, SpanOf(spec_.dw), gradient);
}

std::size_t WeightGradient::scratch_bytes() const {
  const Shape& dy = spec_.y.shape;
  return static_cast<std::size_t>(Runs(dy.n * dy.h * dy.w, run_) * dy.c) * sizeof(float);
}

void WeightGradient::StoreBias(const Pass& pass, std::byte* scratch) const {
  const Shape& shape = spec_.y.shape;
  const std::int64_t rows = pass.rows * shape.h * shape.w, runs = Runs(rows, run_);
  auto* sums = reinterpret_cast<float*>(scratch);
  ForEach(context_.stream, runs * shape.c,
          SumRuns{SpanOf(spec_.dy.tensor), rows, shape.c, run_, sums});
  ForEach(context_.stream, shape.c,
          UnscaledBias{sums, runs, shape.c, spec_.dy.scale, spec_.db.f32(), pass.accumulate,
                       spec_.reference, GridOf(spec_.dw_format)});
}

}  // namespace ada::backend::cuda
