// How attention gets one of its four alphas: the decision, and the observation of the gradient
// afterwards. All of it runs in the stream, and the host does not wait.
#pragma once
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/ops/score_chunks.h"
#include "backend/cuda/rounding/joined_rule.h"

namespace ada::backend::cuda {

// What a decision looks at; see DecideWithin.
struct SeenWithin {
  const TensorMoments *gradient = nullptr, *factor = nullptr, *more = nullptr;
  double times = 1;
};

// The rule of one of attention's decisions. Made with the op, one for each Decision; in a pass
// Decide comes first, then Observe or ObserveChunk for every chunk, in their order.
class WithinRule {
 public:
  // scaler: in memory of AllocateShared, its rule set and sent; null: nothing is decided.
  WithinRule(const Context& context, scaling::LayerScaler* scaler);
  // Whether a decision may look at moments.
  bool looks() const { return looks_; }
  // scale_out: S of the gradient; null: not stored.
  void Decide(const SeenWithin& seen, const float* scale_in, float* scale_out) const;
  // Launches what exact_range observes of the gradient, before alpha; nothing for others. value(i):
  // its values (round_values.h), all of them or a chunk's.
  template <class Value>
  void Observe(const Value& value, std::int64_t values) const {
    if (tail_ == nullptr) return;
    const FlatBlocks flat = FlatBlocksOf(values);
    Launch(stream_, Tail(value, values, flat), flat.blocks);
    if (joined_) joined_->Join();
  }
  // All chunks add to one set of totals, which the launch of the last chunk hands to the scaler.
  template <class Value>
  void ObserveChunk(const Value& value, const ScoreChunk& chunk) const {
    if (tail_ == nullptr) return;
    Launch(stream_,
           PartOfLaunch<TailKernel<Value>>{Tail(value, chunk.values, chunk.flat), chunk.first_block,
                                           chunk.blocks},
           chunk.flat.blocks);
    const bool last = chunk.first_block + chunk.flat.blocks == chunk.blocks;
    if (joined_ && last) joined_->Join();
  }
  // In backend memory.
  const float* alpha() const { return &scaler_->decision.alpha; }

 private:
  template <class Value>
  TailKernel<Value> Tail(const Value& value, std::int64_t values, const FlatBlocks& flat) const {
    return {scaler_, value, values, flat.size, tail_, joined_ ? joined_->part() : nullptr};
  }

  Stream& stream_;
  scaling::LayerScaler* scaler_;
  bool looks_ = false;
  TailTotals* tail_ = nullptr;
  std::optional<JoinedTail> joined_;  // of a run that several processes share
};

// Moments of tensors of the batch, over all processes that share it.
// An op makes one for the decisions before its products and one for those after: each Join is one
// message.
class MomentsOfAll {
 public:
  explicit MomentsOfAll(const Context& context);
  // Launches what brings them together. After it At(k) are those of `here.of[k]`.
  void Join(const MomentsHere& here);
  const TensorMoments* At(int k) const { return joined_ != nullptr ? joined_ + k : here_.of[k]; }

 private:
  Stream& stream_;
  Link* link_;  // null: what this process has is all there is
  MomentsHere here_{};
  MomentsPart *part_ = nullptr, *parts_ = nullptr;
  TensorMoments* joined_ = nullptr;
};

}  // namespace ada::backend::cuda
