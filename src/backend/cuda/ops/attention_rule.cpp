// See attention_rule.h.
#include "backend/cuda/ops/attention_rule.h"

#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"

namespace ada::backend::cuda {

WithinRule::WithinRule(const Context& context, scaling::LayerScaler* scaler)
    : stream_(context.stream), scaler_(scaler) {
  if (scaler == nullptr) return;
  const scaling::LayerRule& rule = context.Host(scaler)->rule;
  // The host's copy of the rule, which is a constant of the run, tells what to plan for.
  looks_ = scaling::MayNeedMoments(rule);
  if (rule.method != scaling::LayerMethod::kExactRange) return;
  tail_ = context.AllocateZeroed<TailTotals>(1);
  if (RulesLink(context.link) != nullptr) joined_.emplace(context, scaler);
}

void WithinRule::Decide(const SeenWithin& seen, const float* scale_in, float* scale_out) const {
  // One thread: the decision itself is a few operations in double.
  ForEach(stream_, 1,
          DecideWithin{scaler_, seen.gradient, seen.factor, seen.more, seen.times, scale_in,
                       scale_out});
}

MomentsOfAll::MomentsOfAll(const Context& context)
    : stream_(context.stream), link_(RulesLink(context.link)) {
  if (link_ == nullptr) return;
  part_ = context.Allocate<MomentsPart>(MomentsHere::kMost);
  parts_ = context.Allocate<MomentsPart>(std::int64_t{MomentsHere::kMost} * link_->ranks());
  joined_ = context.Allocate<TensorMoments>(MomentsHere::kMost);
}

void MomentsOfAll::Join(const MomentsHere& here) {
  here_ = here;
  if (link_ == nullptr) return;
  // Parts travel with the number of values that they are of, so that means are weighted by it.
  ForEach(stream_, MomentsHere::kMost, PutMoments{here, part_});
  link_->AllGatherInStream(part_, MomentsHere::kMost * sizeof(MomentsPart), parts_);
  ForEach(stream_, MomentsHere::kMost, JoinMomentsOfAll{here, parts_, link_->ranks(), joined_});
}

}  // namespace ada::backend::cuda
