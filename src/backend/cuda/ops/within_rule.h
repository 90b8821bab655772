// How attention gets one of its four alphas.
#pragma once
#include <cstdint>
#include <optional>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/attention_decisions.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/ops/attention_memory.h"
#include "backend/cuda/rounding/alpha_rule.h"

namespace ada::backend::cuda {

// What a decision looks at; see DecideWithin.
struct DecisionInputs {
  const TensorMoments *gradient = nullptr, *factor = nullptr, *more = nullptr;
  double times = 1;
};

// The decision, and the observation of the gradient afterwards, all in the stream. In a pass the
// decision comes first, then Observe or ObserveChunk for every chunk, in their order.
class WithinRule {
 public:
  // scaler: in memory of AllocateShared, its rule set and sent; null: nothing is decided.
  WithinRule(const Context& context, scaling::LayerScaler* scaler);
  // Whether a decision may look at moments.
  bool looks() const { return looks_; }
  // What decides by `seen`. scale_out: S of the gradient; null: not stored.
  DecideWithin By(const DecisionInputs& seen, const float* scale_in, float* scale_out) const {
    return {scaler_, seen.gradient, seen.factor, seen.more, seen.times, scale_in, scale_out};
  }
  // Whether the gradient is observed after the decision (exact_range).
  bool observes() const { return tail_ != nullptr; }
  // Launches what is observed of the gradient, before alpha; nothing where it is not. value(i): its
  // values (round_values.h), all of them or a chunk's.
  template <class Value>
  void Observe(const Value& value, std::int64_t values) const {
    if (!observes()) return;
    const FlatBlocks flat = FlatBlocksOf(values);
    Launch(stream_, Tail(value, values, flat), flat.blocks);
    if (joined_) joined_->Join();
  }
  // All chunks add to one set of totals, which the launch of the last chunk hands to the scaler.
  template <class Value>
  void ObserveChunk(const Value& value, const ScoreChunk& chunk) const {
    if (!observes()) return;
    Launch(stream_,
           PartOfLaunch<TailKernel<Value>>{Tail(value, chunk.values, chunk.flat), chunk.first_block,
                                           chunk.blocks},
           chunk.flat.blocks);
    if (joined_ && chunk.is_last()) joined_->Join();
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

}  // namespace ada::backend::cuda
