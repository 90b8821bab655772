// The four decisions of an attention: what they look at, who launches them, and the alphas that
// they give. All of it runs in the stream; both ops of attention work with it.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/attention_decisions.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/ops/attention_memory.h"
#include "backend/cuda/ops/within_rule.h"
#include "backend/cuda/rounding/next_decisions.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// Made with an attention's op. A pass takes the moments that are asked for here in its launches,
// then lets the decisions be made by the last block of LaunchFirst's and of LaunchLast's.
class AttentionRules {
 public:
  using Decision = AttentionSpec::Decision;
  // operands: the storage in which the backward pass multiplies queries, keys and values.
  AttentionRules(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes,
                 Storage operands);

  const WithinRule& operator[](Decision decision) const { return rules_[decision]; }
  // The roundings of all probabilities and of all ds of the batch, with the moments that are looked
  // at. storage: in which they are multiplied; most_blocks: of a launch that measures them.
  RoundingStats ProbabilityStats(Storage storage, int most_blocks) const;
  RoundingStats GradientStats(Storage storage, int most_blocks) const;
  // Measures queries (part 0), keys (1) or values (2), before or in LaunchFirst, where they are
  // looked at (RoundingStats::wanted).
  const RoundingStats& part(std::size_t part) const { return part_stats_[part]; }
  bool measures_parts() const {
    return part_stats_[0].wanted() || part_stats_[1].wanted() || part_stats_[2].wanted();
  }

  // Where all but dy was measured in the forward pass, the launch that measures dy may make the
  // decisions of dv and ds, which are products of it: LaunchFirst, without packs, launches nothing
  // then.
  void DecideEarly();
  void LaunchFirst(const Pass& pass) {
    if (next_ == nullptr || !context_.next_decisions.IsMade(*next_))
      Launch(context_.stream, First(pass), 1);
  }
  // Launches `packs` and these decisions.
  template <StatsLevel kLevel>
  void LaunchFirst(const Pass& pass, const FusedKernels<PackHeadsKernel<kLevel>, 4>& packs) {
    const bool in_turn = context_.stream.switches().fused && !moments_first_.joins();
    if (!in_turn) LaunchFused(context_.stream, packs);
    const DecideBothKernel decide = First(pass);
    if (in_turn)
      LaunchInTurn(context_.stream, packs, decide, finished_, packs.blocks());
    else
      Launch(context_.stream, decide, 1);
  }
  // Launches a kernel that ends the rounding of ds, and the decisions of dq and dk, which are
  // products of it.
  template <class Kernel>
  void LaunchLast(const Pass& pass, const Kernel& kernel, int blocks) {
    if (!moments_last_.joins())
      return LaunchInTurn(context_.stream, kernel, Last(pass), finished_, blocks);
    Launch(context_.stream, kernel, blocks);
    Launch(context_.stream, Last(pass), 1);
  }

 private:
  // Moments of tensors of the batch, over all processes that share it: one for the decisions before
  // the products of a backward pass and one for those after, as each Join is one message.
  class MomentsOfAll {
   public:
    explicit MomentsOfAll(const Context& context);
    // Launches what brings them together. After it At(k) are those of `here.of[k]`.
    void Join(const MomentsHere& here);
    // Whether that takes launches: what reads the moments comes after them then.
    bool joins() const { return link_ != nullptr; }
    const TensorMoments* At(int k) const { return joined_ != nullptr ? joined_ + k : here_.of[k]; }

   private:
    Stream& stream_;
    Link* link_;  // null: what this process has is all there is
    MomentsHere here_{};
    MomentsPart *part_ = nullptr, *parts_ = nullptr;
    TensorMoments* joined_ = nullptr;
  };

  WithinRule RuleOf(Decision decision) const;
  Tensor Scores(const NumberFormat& format, Storage storage) const;
  RoundingStats PartStats(std::size_t part, Storage operands);
  // What decides; moments of several processes are joined before. They are found in the order in
  // which they are given to Join.
  DecideBothKernel First(const Pass& pass);
  DecideBothKernel Last(const Pass& pass);
  float* ScaleOf(std::size_t part) const {
    return part < spec_.dx.size() && spec_.dx[part] ? spec_.dx[part].scale : nullptr;
  }

  Context context_;
  AttentionSpec spec_;
  AttentionSizes sizes_;
  std::array<WithinRule, 4> rules_;  // by Decision
  TensorMoments *p_moments_ = nullptr, *ds_moments_ = nullptr;
  std::array<TensorMoments*, 3> part_moments_{};
  std::array<RoundingStats, 3> part_stats_;  // of queries, keys, values
  MomentsOfAll moments_first_, moments_last_;
  std::uint32_t* finished_;             // blocks of a launch that decides
  std::shared_ptr<NextDecision> next_;  // null: LaunchFirst decides
};

}  // namespace ada::backend::cuda
