// Concatenations, of channels and of boxes. Nothing is rounded or counted but what inputs have in
// other formats than the output; moments are taken where a policy asks.
#include <algorithm>
#include <vector>

#include "backend/cpu/ops/exact_gradient.h"
#include "backend/cpu/ops/moved_values.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/values/moves.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// An image is `parts` times a run of each input: by pixel its channels, or once all it has.
// Concatenation of channels has as many parts as pixels, of boxes one.
class CpuConcat final : public Op {
 public:
  CpuConcat(const Context& context, const ConcatSpec& spec, std::int64_t parts)
      : context_(context),
        spec_(spec),
        parts_(parts),
        y_stats_(spec.y, spec.y_style, spec.y_stats) {
    for (const Gradient& dx : spec.dx) {
      ADA_CHECK(!dx || dx.tensor.storage == spec.dy.tensor.storage);
      dx_stats_.emplace_back(dx);
    }
    context.scratch.Reserve(2 * BlockValues(spec.y.shape) * sizeof(float), 0);
  }
  void Forward(const Pass& pass) override {
    const Shape& shape = spec_.y.shape;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                auto* all = reinterpret_cast<float*>(context_.scratch.worker(worker));
                // Inputs may have formats other than the output's: all are widened to fp32, put
                // side by side and rounded once.
                Join(image, n * parts_, all, all + BlockValues(shape));
                context_.kernels.round(all, 1.0f, At(spec_.y, image), n * shape.per_image(),
                                       y_stats_.For(pass, block));
              });
    y_stats_.Finish(pass);
  }
  void Backward(const Pass& pass) override {
    std::int64_t first = 0;
    for (std::size_t k = 0; k < spec_.dx.size(); ++k) {
      const Gradient& dx = spec_.dx[k];
      if (dx) {
        *dx.scale = *spec_.dy.scale;
        const PartOfRuns part = PartOf(spec_.y.shape, dx.tensor.shape, parts_, first);
        MoveTensor(context_, pass, part, spec_.dy.tensor, dx.tensor);
        InspectExact(context_, dx, dx_stats_[k], pass);
      }
      first += RunOf(spec_.x[k]);
    }
  }

 private:
  // Values in a run of a tensor.
  std::int64_t RunOf(const Tensor& tensor) const { return tensor.shape.per_image() / parts_; }
  // Puts the runs of all inputs next to each other, for `parts` runs from image `image` on. `one`:
  // room for the values of one input.
  void Join(std::int64_t image, std::int64_t parts, float* all, float* one) {
    for (const Tensor& x : spec_.x) {
      const std::int64_t run = RunOf(x);
      context_.kernels.widen(At(x, image), one, parts * run);
      for (std::int64_t p = 0; p < parts; ++p)
        std::copy_n(one + p * run, run, all + p * RunOf(spec_.y));
      all += run;
    }
  }
  Context context_;
  ConcatSpec spec_;
  std::int64_t parts_;
  RoundingStats y_stats_;
  std::vector<RoundingStats> dx_stats_;  // by input
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatSpec& s) {
  return std::make_unique<CpuConcat>(c, s, s.y.shape.h * s.y.shape.w);
}
template <>
std::unique_ptr<Op> MakeOp(const Context& c, const ConcatBoxesSpec& s) {
  return std::make_unique<CpuConcat>(c, s, 1);
}

}  // namespace ada::backend::cpu
