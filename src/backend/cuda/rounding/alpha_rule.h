// How a layer gets its alpha: the inputs of its rule, the decision, and the observation of the data
// gradient afterwards. All of it runs in the stream, and the host does not wait.
#pragma once
#include <cstdint>
#include <optional>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/rounding/joined_rule.h"

namespace ada::backend::cuda {

// A layer's weights as its rule sees them; all null or 0: a cast.
struct RuleWeights {
  const TensorMoments* moments = nullptr;
  TensorSpan rows;                        // the copy that is multiplied, by output channel
  std::int64_t channels = 0, values = 0;  // output channels, and values in a row
  bool own = false;                       // each of several processes has its own
  // For a transposed convolution a channel has `inputs` rows, those of `group` channels one after
  // the other for each input.
  std::int64_t inputs = 1, group = 1;
};

// Made with the op, where there is a dx. scaler: in memory of AllocateShared, its rule set and
// sent.
class AlphaRule {
 public:
  AlphaRule(const Context& context, scaling::LayerScaler* scaler, const Gradient& dy,
            const Gradient& dx, const RuleWeights& weights = {});
  // Launches all that leads to alpha() and to the scale of dx.
  void Decide(const Pass& pass) const;
  // Launches what exact_range observes of the data gradient, before alpha; nothing for others.
  // value(i): its values (round_values.h).
  template <class Value>
  void Observe(const Value& value, std::int64_t values) const;
  // In backend memory.
  const float* alpha() const { return &scaler_->decision.alpha; }

 private:
  // Launches what lognormal (of a cast) and element_wise_range look at besides moments; both
  // kernels return at once where this pass's decision needs none of it.
  void TakeLogs(const Pass& pass) const;
  void TakeProducts(const Pass& pass) const;
  void MakeJoined(const Context& context, const scaling::LayerRule& rule);

  Stream& stream_;
  scaling::LayerScaler* scaler_;
  Gradient dy_, dx_;
  RuleWeights weights_;
  LogMoments* log_blocks_ = nullptr;  // null: logarithms are never wanted; likewise the others
  std::uint32_t* logs_finished_ = nullptr;
  LogSums* logs_ = nullptr;
  LogMoments* log_moments_ = nullptr;
  ChannelMagnitudes dy_magnitudes_{}, w_magnitudes_{};
  TailTotals* tail_ = nullptr;
  // If several processes decide together; unset: this one decides by its own values.
  std::optional<JoinedRule> joined_;
  std::optional<JoinedTail> joined_tail_;
};

template <class Value>
void AlphaRule::Observe(const Value& value, std::int64_t values) const {
  if (tail_ == nullptr) return;
  const FlatBlocks flat = FlatBlocksOf(values);
  TailPart* part = joined_tail_ ? joined_tail_->part() : nullptr;
  Launch(stream_, TailKernel<Value>{scaler_, value, values, flat.size, tail_, part}, flat.blocks);
  if (joined_tail_) joined_tail_->Join();
}

}  // namespace ada::backend::cuda
