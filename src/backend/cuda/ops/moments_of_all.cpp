// See moments_of_all.h.
#include "backend/cuda/ops/moments_of_all.h"

#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

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
