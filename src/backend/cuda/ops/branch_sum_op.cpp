// The sum of gradients where an output feeds several layers.
#include <algorithm>
#include <vector>

#include "backend/cuda/kernels/branch_repair.h"
#include "backend/cuda/kernels/branch_sum.h"
#include "backend/cuda/link.h"
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
      : stream_(context.stream),
        link_(RulesLink(context.link)),
        spec_(spec),
        stats_(context, spec.sum) {
    ADA_CHECK(spec.sum.stats != nullptr);  // tell whether the sum fits
    grid_ = GridOf(spec.sum.tensor.format);
    MakeSet(context);
  }
  void Forward(const Pass&) override {}

  void Backward(const Pass& pass) override {
    const std::int64_t values = pass.rows * spec_.sum.tensor.shape.per_image();
    const bool always = spec_.reference && spec_.rescale;
    if (looks_ && (always || !spec_.reference || link_ != nullptr)) {
      const int cuts = static_cast<int>(std::clamp<std::int64_t>(values / 4096, 1, 256));
      Launch(stream_, BranchLookKernel{set_, values, cuts, always || link_ != nullptr},
             cuts * set_.count);
    }
    if (link_ != nullptr) JoinLargest();
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
            BranchBound(spec_),
            nullptr};
    if (link_ != nullptr) {
      mine_ = context.Allocate<double>(count);
      all_ = context.Allocate<double>(count * link_->ranks());
      set_.joined = context.Allocate<double>(count);
      part_ = context.Allocate<BranchSumPart>(1);
      parts_ = context.Allocate<BranchSumPart>(link_->ranks());
    }
    const std::size_t second = terms.size() > 1 ? 1 : 0;
    value_ = {terms[0].span, terms[second].span, set_.terms, set_.factors, set_.count};
  }
  // Largest magnitudes of the branches become those of all processes.
  void JoinLargest() {
    ForEach(stream_, set_.count, PutLargest{set_, mine_});
    link_->GatherInStream(mine_, static_cast<std::size_t>(set_.count) * sizeof(double), all_);
    ForEach(stream_, set_.count,
            TakeLargest{all_, link_->ranks(), set_.count, const_cast<double*>(set_.joined)});
  }
  void Repair(const Pass& pass, const TensorSpan& out) {
    const Rounding how = stats_.For(pass);
    const BranchHalvings sum{set_, value_, out, how, spec_.sum.stats};
    if (link_ != nullptr) {
      Launch(stream_, BranchSumPartKernel{sum, part_}, 1);
      link_->GatherInStream(part_, sizeof(BranchSumPart), parts_);
    }
    const int ranks = link_ != nullptr ? link_->ranks() : 0;
    stats_.AtLevel(pass, [&](auto level) {
      using Kernel = BranchRepairKernel<decltype(level)::value>;
      Launch(stream_, Kernel{sum, parts_, ranks}, 1);
    });
  }

  Stream& stream_;
  Link* link_;  // null: this process decides by what it has itself
  BranchSumSpec spec_;
  RoundingStats stats_;
  NumberGrid grid_;
  BranchSet set_{};
  BranchSumValue value_{};
  bool looks_ = false;  // at the values of some branch, to find the largest
  double *mine_ = nullptr, *all_ = nullptr;
  BranchSumPart *part_ = nullptr, *parts_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BranchSumSpec& s) {
  return std::make_unique<CudaBranchSum>(c, s);
}

}  // namespace ada::backend::cuda
