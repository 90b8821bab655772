// The sum of gradients where an output feeds several layers.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "backend/cuda/kernels/branch_repair.h"
#include "backend/cuda/kernels/branch_sum.h"
#include "backend/cuda/kernels/last_block.h"
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
    finished_ = context.Allocate<std::uint32_t>(1);
  }
  void Forward(const Pass&) override {}

  void Backward(const Pass& pass) override {
    const std::int64_t values = pass.rows * spec_.sum.tensor.shape.per_image();
    const bool always = spec_.reference && spec_.rescale;
    const BranchTargetKernel target{set_, spec_.reference, spec_.rescale};
    if (looks_ && values > 0 && (always || !spec_.reference)) {
      const int cuts = static_cast<int>(std::clamp<std::int64_t>(values / 4096, 1, 256));
      const BranchLookKernel look{set_, values, cuts, always};
      Launch(stream_,
             LastBlockKernel<BranchLookKernel, BranchTargetKernel>{look, target, finished_},
             cuts * set_.count);
    } else {
      Launch(stream_, target, 1);
    }
    const TensorSpan out = SpanOf(spec_.sum.tensor);
    if (spec_.reference)
      return stats_.Round(pass, out, BranchStepsValue{set_.terms, set_.factors, set_.count, grid_});
    const Rounding how = stats_.For(pass);
    stats_.RoundWith(pass, out, value_, 0, [&](const auto& sum, auto level) {
      using Repair = BranchRepairKernel<decltype(level)::value>;
      return LastBlockKernel<std::decay_t<decltype(sum)>, Repair>{
          sum, {set_, value_, out, how, spec_.sum.stats}, finished_};
    });
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

  Stream& stream_;
  BranchSumSpec spec_;
  RoundingStats stats_;
  NumberGrid grid_;
  BranchSet set_{};
  BranchSumValue value_{};
  std::uint32_t* finished_ = nullptr;  // blocks
  bool looks_ = false;                 // at the values of some branch, to find the largest
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BranchSumSpec& s) {
  return std::make_unique<CudaBranchSum>(c, s);
}

}  // namespace ada::backend::cuda
