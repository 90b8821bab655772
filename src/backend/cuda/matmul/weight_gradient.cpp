// See weight_gradient.h.
#include "backend/cuda/matmul/weight_gradient.h"

#include <algorithm>

#include "backend/cuda/kernels/matmul.h"
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

WeightGradient::WeightGradient(const Context& context, const MatmulSpec& spec)
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
                                  pass.accumulate || spec_.adds_dw,
                                  spec_.reference && stats_.rounds() && !pass.part,
                                  GridOf(spec_.dw_format)};
  if (pass.part)
    return ForEach(context_.stream, w.numel(), StoreUnscaled{gradient, spec_.dw.f32()});
  stats_.Round(pass, SpanOf(spec_.dw), gradient);
}

std::size_t WeightGradient::scratch_bytes() const {
  const Shape& dy = spec_.y.shape;
  return static_cast<std::size_t>(Runs(dy.n * dy.h * dy.w, run_) * dy.c) * sizeof(float);
}

// From dy as it is stored: runs of rows in fp32, then the runs in double.
void WeightGradient::StoreBias(const Pass& pass, std::byte* scratch) const {
  const Shape& shape = spec_.y.shape;
  const std::int64_t rows = pass.rows * shape.h * shape.w, runs = Runs(rows, run_);
  auto* sums = reinterpret_cast<float*>(scratch);
  ForEach(context_.stream, runs * shape.c,
          SumRuns{SpanOf(spec_.dy.tensor), rows, shape.c, run_, sums});
  ForEach(context_.stream, shape.c,
          UnscaledBias{sums, runs, shape.c, spec_.dy.scale, spec_.db.f32(), pass.accumulate,
                       spec_.reference && !pass.part, GridOf(spec_.dw_format)});
}

// dw is rounded as in the authors' program, rounded, only counted, or left unchanged, depending on
// its format and the spec.
void WeightGradient::Finish(const Pass& pass) const {
  const TensorSpan dw = SpanOf(spec_.dw);
  const NumberGrid grid = GridOf(spec_.dw_format);
  if (stats_.rounds() && spec_.reference)
    stats_.Round(pass, dw, SumAsReference{spec_.dw.f32(), spec_.dy.scale, grid});
  else if (stats_.rounds())
    stats_.Round(pass, dw, StoredValues{dw});
  else if (stats_.wanted())
    stats_.Count(pass, dw);
  if (!spec_.b || !spec_.reference) return;
  ForEach(context_.stream, spec_.y.shape.c,
          RoundBiasSum{{spec_.db.f32(), spec_.dy.scale, grid}, spec_.db.f32()});
}

}  // namespace ada::backend::cuda
