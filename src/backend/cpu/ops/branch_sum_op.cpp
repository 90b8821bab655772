// Sums the gradients of an output that feeds several layers.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "backend/cpu/ops/ops.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/sequence_kernels.h"
#include "backend/decisions.h"

namespace ada::backend::cpu {
namespace {

// The op of a BranchSumSpec, which the graph runs in the backward pass once all branches have their
// gradients. Branches are only read; their scales may differ and are brought to the one scale that
// the sum then carries.
class CpuBranchSum final : public Op {
 public:
  CpuBranchSum(const Context& context, const BranchSumSpec& spec)
      : context_(context), spec_(spec), factors_(spec.branches.size()), stats_(spec.sum) {
    const Shape& shape = spec.sum.tensor.shape;
    // LargestStored keeps a magnitude for each block of a whole batch.
    largest_.resize(static_cast<std::size_t>(BlockCount(shape.n, BlockImages(shape))));
    if (spec.reference || !spec.first.empty())
      context.scratch.Reserve(2 * BlockValues(shape) * sizeof(float), 0);
  }
  void Forward(const Pass&) override {}

  void Backward(const Pass& pass) override {
    std::vector<float> scales;
    for (const Gradient& g : spec_.branches) scales.push_back(*g.scale);
    std::int32_t halvings = 0;
    scaling::DecisionError error = scaling::DecisionError::kNone;
    // The authors' program has no branches with only some of the channels.
    const bool as_reference = spec_.reference && spec_.first.empty();
    const float scale =
        as_reference ? SumLikeReference(pass, scales, error) : SumFitting(pass, scales, halvings);
    if (spec_.decision != nullptr) *spec_.decision = BranchDecision(scale, halvings, error);
  }

 private:
  // The sum at the largest scale at which branches and sum fit; returns that scale.
  float SumFitting(const Pass& pass, const std::vector<float>& scales, std::int32_t& halvings) {
    // Equal scales, as all global policies give, need no look at the branches: the target is their
    // scale, and factors are exactly 1.
    bool equal = true;
    for (const float s : scales) equal = equal && s == scales[0];
    const double u_max = BranchBound(spec_);
    float target = scales[0];
    if (!equal)
      target = scaling::BranchTarget(scales.data(), static_cast<int>(scales.size()), Largest(pass),
                                     u_max);
    // The sum of branches that fit may overflow. It is made anew at half the scale until it fits,
    // unless a branch does not fit at this scale either: halving then would not help, and the
    // overflow is left for the update to find.
    for (halvings = 0;; ++halvings, target /= 2) {
      Sum(pass, scales, target);
      const double sum_max = OfAll(static_cast<double>(stats_.max_abs()));
      if (!scaling::BranchSumOverflows(target, sum_max, u_max)) return target;
      if (!scaling::BranchesFit(target, Largest(pass), u_max)) return target;
    }
  }

  // The authors' way; returns the scale, NaN (and all of the sum) where they raise.
  float SumLikeReference(const Pass& pass, const std::vector<float>& scales,
                         scaling::DecisionError& error) {
    const float target = spec_.rescale ? TargetOfReference(pass, scales) : scales[0];
    if (std::isnan(target)) error = scaling::DecisionError::kNoTarget;
    for (std::size_t i = 0; i < scales.size(); ++i)
      factors_[i] =
          spec_.rescale ? RoundTo(spec_.branches[i].tensor.format, target / scales[i]) : 1;
    const Shape& shape = spec_.sum.tensor.shape;
    *spec_.sum.scale = target;
    ForBlocks(context_, shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                SumStepwise(image, n * shape.per_image(), stats_.For(pass, block), worker);
              });
    stats_.Finish(pass);
    return target;
  }
  float TargetOfReference(const Pass& pass, const std::vector<float>& scales) {
    // The largest magnitudes come from the branches as stored, one message for each where several
    // processes share the batch.
    std::vector<float> largest;
    for (std::size_t i = 0; i < scales.size(); ++i)
      largest.push_back(static_cast<float>(OfAll(LargestOf(pass, i))));
    const auto count = static_cast<int>(scales.size());
    return scaling::BranchTargetReference(
        scales.data(), count, scaling::BranchLargestReference(largest.data(), scales.data(), count),
        static_cast<float>(BranchBound(spec_)));
  }
  // Every product and every partial sum is rounded; `last` is the rounding of the whole sum.
  // Terms lie in the worker's memory: the sum so far, and the product that is added to it.
  void SumStepwise(std::int64_t image, std::int64_t n, const Rounding& last, int worker) {
    auto* sum = reinterpret_cast<float*>(context_.scratch.worker(worker));
    const TensorSpan terms[] = {{sum, Storage::kF32},
                                {sum + BlockValues(spec_.sum.tensor.shape), Storage::kF32}};
    const Tensor& out = spec_.sum.tensor;
    const std::size_t count = spec_.branches.size();
    for (std::size_t i = 0; i < count; ++i) {
      const Tensor& branch = spec_.branches[i].tensor;
      const TensorSpan in = At(branch, image);
      context_.kernels.sum(&in, &factors_[i], 1, terms[i == 0 ? 0 : 1], n,
                           RoundOnly(branch.format));
      if (i == 0 && count > 1) continue;
      context_.kernels.sum(terms, nullptr, i == 0 ? 1 : 2,
                           i + 1 == count ? At(out, image) : terms[0], n,
                           i + 1 == count ? last : RoundOnly(out.format));
    }
  }
  // Largest unscaled magnitude over the branches; infinite where a branch is not finite.
  double Largest(const Pass& pass) {
    double largest = 0;
    for (std::size_t i = 0; i < spec_.branches.size() && std::isfinite(largest); ++i)
      largest = JoinBranch(largest, LargestOf(pass, i), *spec_.branches[i].scale);
    return OfAll(largest);
  }
  // The largest of all processes.
  double OfAll(double mine) const {
    return IsShared(context_.shared.rules) ? LargestOfAll(*context_.shared.rules, mine) : mine;
  }
  // Largest magnitude of one branch, as stored; infinite or NaN if it contains such values.
  double LargestOf(const Pass& pass, std::size_t branch) {
    const Gradient& g = spec_.branches[branch];
    if (g.moments != nullptr) return backend::LargestOf(*g.moments);
    if (!KeepsOrder(g)) return static_cast<double>(LargestStored(pass, g.tensor));
    const float own = g.style.per_tensor_scale != nullptr ? g.style.per_tensor_scale->scale : 1;
    return backend::LargestOf(GridOf(g.tensor.format), g.stats->max_abs, own);
  }
  // Largest magnitude of the values in memory, by their bits: a NaN is larger than infinity.
  float LargestStored(const Pass& pass, const Tensor& t) {
    ForBlocks(context_, t.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int) {
                largest_[static_cast<std::size_t>(block)] =
                    context_.kernels.largest_stored(At(t, image), n * t.shape.per_image());
              });
    const auto blocks = BlockCount(pass.rows, BlockImages(t.shape));
    return std::bit_cast<float>(*std::max_element(largest_.begin(), largest_.begin() + blocks));
  }
  // sum = round(sum of g_i * target / S_i), in fp32 from left to right, with its statistics.
  void Sum(const Pass& pass, const std::vector<float>& scales, float target) {
    *spec_.sum.scale = target;
    for (std::size_t i = 0; i < scales.size(); ++i) factors_[i] = target / scales[i];
    const Tensor& out = spec_.sum.tensor;
    ForBlocks(context_, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                if (!spec_.first.empty()) return SumParts(pass, image, n, block, worker);
                std::vector<TensorSpan> in;
                for (const Gradient& g : spec_.branches) in.push_back(At(g.tensor, image));
                context_.kernels.sum(in.data(), factors_.data(), static_cast<int>(in.size()),
                                     At(out, image), n * out.shape.per_image(),
                                     stats_.For(pass, block));
              });
    stats_.Finish(pass);
  }

  // The same for branches that have only some of the channels.
  void SumParts(const Pass& pass, std::int64_t image, std::int64_t n, std::int64_t block,
                int worker) {
    const Shape& shape = spec_.sum.tensor.shape;
    const std::int64_t pixels = n * shape.h * shape.w;
    auto* sum = reinterpret_cast<float*>(context_.scratch.worker(worker));
    std::fill_n(sum, pixels * shape.c, -0.0f);  // to which -0 adds up to -0
    for (std::size_t i = 0; i < spec_.branches.size(); ++i) {
      const Tensor& branch = spec_.branches[i].tensor;
      SequenceKernelsOf(context_.kernels)
          .add_rows(At(branch, image), pixels, branch.shape.c, factors_[i], sum + spec_.first[i],
                    shape.c);
    }
    context_.kernels.round(sum, 1.0f, At(spec_.sum.tensor, image), pixels * shape.c,
                           stats_.For(pass, block));
  }

  Context context_;
  BranchSumSpec spec_;
  std::vector<float> factors_;
  RoundingStats stats_;
  std::vector<std::uint32_t> largest_;  // by block
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BranchSumSpec& s) {
  return std::make_unique<CpuBranchSum>(c, s);
}

}  // namespace ada::backend::cpu
