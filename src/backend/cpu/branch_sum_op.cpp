// The sum of gradients where an output feeds several layers (POLICIES 1, "Where branches meet").
#include <cmath>
#include <vector>

#include "backend/cpu/block_loop.h"
#include "backend/cpu/simple_ops.h"

namespace ada::backend::cpu {
namespace {

class CpuBranchSum final : public Op {
 public:
  CpuBranchSum(const Context& context, const BranchSumSpec& spec)
      : context_(context),
        spec_(spec),
        factors_(spec.branches.size()),
        notes_(spec.sum, Blocks(spec.sum.tensor.shape, spec.sum.tensor.shape.n)) {
    for (const Gradient& g : spec.branches) {
      branch_notes_.emplace_back(nullptr, nullptr, Blocks(g.tensor.shape, g.tensor.shape.n));
      own_moments_.emplace_back();
    }
  }
  void Forward(const Pass&) override {}

  void Backward(const Pass& pass) override {
    std::vector<float> scales;
    for (const Gradient& g : spec_.branches) scales.push_back(*g.scale);
    bool equal = true;
    for (const float s : scales) equal = equal && s == scales[0];
    const double u_max = spec_.sum.tensor.format.largest();
    float target = scales[0];
    if (!equal)
      target = scaling::BranchTarget(scales.data(), static_cast<int>(scales.size()), Largest(pass),
                                     u_max);
    std::int32_t halvings = 0;
    for (;; ++halvings, target /= 2) {
      Sum(pass, scales, target);
      // The sum may leave the format's range where no branch does: half the scale then.
      const double sum_max = static_cast<double>(notes_.max_abs());
      if (!(sum_max >= u_max) || target < 0x1p-120f) break;
      if (!(Largest(pass) * static_cast<double>(target) < u_max)) break;
    }
    *spec_.sum.scale = target;
    if (spec_.decision == nullptr) return;
    *spec_.decision = scaling::ScaleDecision{};
    spec_.decision->scale_in = spec_.decision->scale_out = target;
    spec_.decision->limit = scaling::Limit::kBranch;
    spec_.decision->halvings = halvings;
  }

 private:
  // Largest unscaled magnitude over the branches; infinite where a branch is not finite.
  double Largest(const Pass& pass) {
    double largest = 0;
    for (std::size_t i = 0; i < spec_.branches.size(); ++i) {
      const Gradient& g = spec_.branches[i];
      const TensorMoments moments = g.moments != nullptr ? *g.moments : Inspect(pass, i);
      if (!std::isfinite(moments.mean_square)) return INFINITY;
      const double m = std::max(std::fabs(static_cast<double>(moments.min)),
                                std::fabs(static_cast<double>(moments.max)));
      largest = std::max(largest, m / static_cast<double>(*g.scale));
    }
    return largest;
  }
  TensorMoments Inspect(const Pass& pass, std::size_t branch) {
    const Tensor& t = spec_.branches[branch].tensor;
    Notes& notes = branch_notes_[branch];
    notes = Notes(nullptr, &own_moments_[branch], Blocks(t.shape, t.shape.n));
    ForBlocks(context_, t.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                context_.kernels.inspect(At(t, image), n * t.shape.per_image(),
                                         notes.For(t.format, pass, block));
              });
    Finish(notes, t.shape, pass);
    return own_moments_[branch];
  }
  void Sum(const Pass& pass, const std::vector<float>& scales, float target) {
    for (std::size_t i = 0; i < scales.size(); ++i) factors_[i] = target / scales[i];
    const Tensor& out = spec_.sum.tensor;
    ForBlocks(context_, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                std::vector<Piece> in;
                for (const Gradient& g : spec_.branches) in.push_back(At(g.tensor, image));
                context_.kernels.sum(in.data(), factors_.data(), static_cast<int>(in.size()),
                                     At(out, image), n * out.shape.per_image(),
                                     notes_.For(out.format, pass, block));
              });
    Finish(notes_, out.shape, pass);
  }

  Context context_;
  BranchSumSpec spec_;
  std::vector<float> factors_;
  Notes notes_;
  std::vector<Notes> branch_notes_;
  std::vector<TensorMoments> own_moments_;
};

}  // namespace

std::unique_ptr<Op> MakeBranchSumOp(const Context& c, const BranchSumSpec& s) {
  return std::make_unique<CpuBranchSum>(c, s);
}

}  // namespace ada::backend::cpu
