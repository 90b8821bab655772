// The sum of gradients where an output feeds several layers.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/branch_sum.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/link.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/decisions.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

// A branch as kernels see it; `first` is its first channel in the sum. If rounding was monotonic,
// its statistics give its largest magnitude.
BranchTerm TermOf(const Gradient& g, int first) {
  BranchTerm term{};
  term.first = static_cast<std::uint32_t>(first);
  term.channels = static_cast<std::uint32_t>(g.tensor.shape.c);
  term.span = SpanOf(g.tensor), term.grid = GridOf(g.tensor.format);
  term.scale = g.scale, term.moments = g.moments;
  term.stats = KeepsOrder(g) ? g.stats : nullptr;
  term.per_tensor_scale =
      g.style.per_tensor_scale != nullptr ? &g.style.per_tensor_scale->scale : nullptr;
  if (g.amax_deferred && g.moments == nullptr) term.left = g.stats;
  term.counted = g.style.counted, term.has_bins = g.style.bins != nullptr;
  return term;
}

// The op of a BranchSumSpec. The target, the sum and what has to be repaired of it are decided on
// the device; branches are only read.
class CudaBranchSum final : public Op {
 public:
  CudaBranchSum(const Context& context, const BranchSumSpec& spec)
      : stream_(context.stream),
        link_(RulesLink(context.link)),
        spec_(spec),
        as_reference_(spec.reference && spec.first.empty()),
        stats_(context, spec.sum) {
    ADA_CHECK(spec.sum.stats != nullptr);  // tell whether the sum fits
    grid_ = GridOf(spec.sum.tensor.format);
    MakeSet(context);
    finished_ = context.AllocateZeroed<std::uint32_t>(1);
  }
  void Forward(const Pass&) override {}

  void Backward(const Pass& pass) override {
    set_.values = pass.rows * spec_.sum.tensor.shape.per_image();
    set_.counts = pass.count, set_.bins = pass.bins;
    bool looks = looks_, left = false;
    for (const Gradient& g : spec_.branches)
      left = left || (g.amax_deferred && DefersAmax(pass, g.style, g.stats, g.moments));
    looks = looks || left;
    // Where branches need no look their scale is found in the launch that sums.
    const BranchTargetFirst target{
        {set_, as_reference_, spec_.rescale},
        stream_.switches().fused && !looks && link_ == nullptr && !as_reference_};
    if (!target.decides) FindTarget(looks, left);
    const TensorSpan out = SpanOf(spec_.sum.tensor);
    if (as_reference_)
      return stats_.Round(pass, out, BranchStepsValue{set_.terms, set_.factors, set_.count, grid_});
    const Rounding how = stats_.For(pass);
    const BranchHalvings halvings{set_, value_, out, how, spec_.sum.stats};
    if (link_ != nullptr) {
      stats_.Round(pass, out, value_);
      return RepairOverRanks(pass, halvings);
    }
    // The kernel that repairs runs as the last block of the one that sums, and mostly finds nothing
    // to do.
    stats_.RoundWith(pass, out, value_, 0, [&](const auto& sum, auto level, int blocks) {
      using Repair = BranchRepairKernel<decltype(level)::value>;
      const FusedPhases<BranchTargetFirst, std::decay_t<decltype(sum)>> both{target, sum};
      const Repair repair{halvings, nullptr, 0};
      if constexpr (decltype(level)::value == StatsLevel::kMoments)
        if (const auto decide = stats_.Next())
          return LaunchInTurn(stream_, both, FusedPhases<Repair, DecideNextKernel>{repair, *decide},
                              finished_, blocks);
      LaunchInTurn(stream_, both, repair, finished_, blocks);
    });
  }

 private:
  // Constants of the run are copied to backend memory once: the list of branches and pointers to
  // their data.
  void MakeSet(const Context& context) {
    std::vector<BranchTerm> terms;
    for (std::size_t i = 0; i < spec_.branches.size(); ++i)
      terms.push_back(TermOf(spec_.branches[i], spec_.first.empty() ? 0 : spec_.first[i]));
    for (const BranchTerm& term : terms)
      looks_ = looks_ || (term.moments == nullptr && term.stats == nullptr);
    const auto count = static_cast<std::int64_t>(terms.size());
    set_ = {context.Keep(terms),
            static_cast<int>(count),
            context.Allocate<float>(count),
            context.Allocate<float>(count),
            context.Allocate<float>(count),
            context.AllocateZeroed<std::uint32_t>(count),
            spec_.sum.scale,
            spec_.decision,
            BranchBound(spec_),
            nullptr,
            static_cast<std::uint32_t>(spec_.sum.tensor.shape.c),
            0,
            false,
            false};
    if (link_ != nullptr) {
      mine_ = context.Allocate<double>(count);
      all_ = context.Allocate<double>(count * link_->ranks());
      set_.joined = context.Allocate<double>(count);
      part_ = context.Allocate<BranchSumPart>(1);
      parts_ = context.Allocate<BranchSumPart>(link_->ranks());
    }
    const std::size_t second = terms.size() > 1 ? 1 : 0;
    value_ = {terms[0].span, terms[second].span, set_.terms,
              set_.factors,  set_.count,         spec_.first.empty() ? 0 : set_.channels};
  }
  // The scale of the sum, by the largest magnitudes of the branches; of several processes it waits
  // for what the others found.
  // any: a branch is looked at, left: because its largest magnitude is left to this op.
  void FindTarget(bool any, bool left) {
    const std::int64_t values = set_.values;
    const bool always = (as_reference_ && spec_.rescale) || link_ != nullptr;
    const bool looks = any && values > 0 && (always || left || !as_reference_);
    // Only branches whose statistics do not tell it are looked at, each by `cuts` blocks of
    // threads. With equal scales nobody needs the largest magnitude, which the kernel finds out on
    // the device; `always` overrules that: the authors' program looks in every pass, and processes
    // cannot leave out a message.
    const int cuts = static_cast<int>(std::clamp<std::int64_t>(values / 4096, 1, 1024));
    const BranchLookKernel look{set_, cuts, always};
    const BranchTargetKernel target{set_, as_reference_, spec_.rescale};
    if (looks && link_ == nullptr)
      return LaunchInTurn(stream_, look, target, finished_, cuts * set_.count);
    if (looks) Launch(stream_, look, cuts * set_.count);
    if (link_ != nullptr) JoinLargest();
    Launch(stream_, target, 1);
  }
  // Largest magnitudes of the branches become those of all processes.
  void JoinLargest() {
    ForEach(stream_, set_.count, PutLargest{set_, mine_});
    link_->AllGatherInStream(mine_, static_cast<std::size_t>(set_.count) * sizeof(double), all_);
    ForEach(stream_, set_.count,
            TakeLargest{all_, link_->ranks(), set_.count, const_cast<double*>(set_.joined)});
  }
  // From the reports of all processes about their parts of the sum.
  void RepairOverRanks(const Pass& pass, const BranchHalvings& halvings) {
    Launch(stream_, BranchSumPartKernel{halvings, part_}, 1);
    link_->AllGatherInStream(part_, sizeof(BranchSumPart), parts_);
    stats_.AtLevel(pass, [&](auto level) {
      using Kernel = BranchRepairKernel<decltype(level)::value>;
      Launch(stream_, Kernel{halvings, parts_, link_->ranks()}, 1);
    });
  }

  Stream& stream_;
  Link* link_;  // null: this process decides by what it has itself
  BranchSumSpec spec_;
  bool as_reference_;  // the authors' program, which knows no parts
  RoundingStats stats_;
  NumberGrid grid_;
  BranchSet set_{};
  BranchSumValue value_{};
  std::uint32_t* finished_ = nullptr;  // blocks
  bool looks_ = false;                 // at the values of some branch, to find the largest
  double *mine_ = nullptr, *all_ = nullptr;
  BranchSumPart *part_ = nullptr, *parts_ = nullptr;
};

}  // namespace

template <>
std::unique_ptr<Op> MakeOp(const Context& c, const BranchSumSpec& s) {
  return std::make_unique<CudaBranchSum>(c, s);
}

}  // namespace ada::backend::cuda
