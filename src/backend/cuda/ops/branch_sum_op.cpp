// The sum of gradients where an output feeds several layers.
#include <algorithm>
#include <vector>

#include "backend/cuda/kernels/branch_repair.h"
#include "backend/cuda/kernels/branch_sum.h"
#include "backend/cuda/ops/ops.h"
#include "backend/cuda/ops/rounding_stats.h"
#include "backend/decisions.h"
#include "core/error.h"

namespace ada::backend::cuda {
namespace {

BranchTerm TermOf(const Gradient& g) {
  BranchTerm term{};
  term.span = SpanOf(g.tensor), term.grid = GridOf(g.tensor.format);
  term.scale = g.scale, term.moments = g.moments;
  term.stats = KeepsOrder(g) ? g.stats : nullptr;
  term.own_scale = g.style.own_scale != nullptr ? &g.style.own_scale->scale : nullptr;
  return term;
}

class CudaBranchSum final : public Op {
 public:
  CudaBranchSum(const Context& context, const BranchSumSpec& spec)
      : stream_(context.stream), spec_(spec), stats_(context, spec.sum) {
    ADA_CHECK(spec.sum.stats != nullptr);  // tell whether the sum fits
    grid_ = GridOf(spec.sum.tensor.format);
    MakeSet(context);
  }
  void Forward(const Pass&) override {}

  void Backward(const Pass& pass) override {
    const std::int64_t values = pass.rows * spec_.sum.tensor.shape.per_image();
    const bool always = spec_.reference && spec_.rescale;
    if (looks_ && (always || !spec_.reference)) {
      const int cuts = static_cast<int>(std::clamp<std::int64_t>(values / 4096, 1, 256));
      Launch(stream_, BranchLookKernel{set_, values, cuts, always}, cuts * set_.count);
    }
    Launch(stream_, BranchTargetKernel{set_, spec_.reference, spec_.rescale}, 1);
    const TensorSpan out = SpanOf(spec_.sum.tensor);
    if (spec_.reference)
      return stats_.Round(pass, out, BranchStepsValue{set_.terms, set_.factors, set_.count, grid_});
    stats_.Round(pass, out, value_);
    Repair(pass, out);
  }

 private:
  void MakeSet(const Context& context) {
    std::vector<BranchTerm> terms;
    for (const Gradient& g : spec_.branches) terms.push_back(TermOf(g));
    for (const BranchTerm& term : terms) looks_ = looks_ || term.looks();
    const auto count = static_cast<std::int64_t>(terms.size());
    set_ = {context.Keep(terms),
            static_cast<int>(count),
            context.Allocate<float>(count),
            context.Allocate<float>(count),
            context.Allocate<float>(count),
            context.Allocate<std::uint32_t>(count),
            spec_.sum.scale,
            spec_.decision,
            BranchBound(spec_)};
    const std::size_t second = terms.size() > 1 ? 1 : 0;
    value_ = {terms[0].span, terms[second].span, set_.terms, set_.factors, set_.count};
  }
  void Repair(const Pass& pass, const TensorSpan& out) {
    const Rounding how = stats_.For(pass);
    stats_.AtLevel(pass, [&](auto level) {
      using Kernel = BranchRepairKernel<decltype(level)::value>;
      Launch(stream_, Kernel{set_, value_, out, how, spec_.sum.stats}, 1);
    });
  }

  Stream& stream_;
  BranchSumSpec spec_;
  RoundingStats stats_;
  NumberGrid grid_;
  BranchSet set_{};
  BranchSumValue value_{};
  bool looks_ = false;  // at the values of some branch, to find the largest
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BranchSumSpec& s) {
  return std::make_unique<CudaBranchSum>(c, s);
}

}  // namespace ada::backend::cuda
