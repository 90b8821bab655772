// How a layer gets its alpha: the inputs of its rule, the decision, and the observation of the data
// gradient afterwards. All of it runs in the stream, and the host does not wait.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "backend/communicators.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/decide.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/rounding/next_decisions.h"

namespace ada::backend::cuda {

// What a layer's rule looks at where several processes share the batch: each one's part goes to
// all, in the stream, one message a decision. Decisions are the same everywhere, then.
// One process's. After it lie the magnitudes of `channels` channels, where the rule looks at
// products: dy's low and high, and w's.
// Sent as bytes: plain data of one size in all processes.
struct RuleInputsPart {
  MomentsPart dy, w;
  LogMoments logs;

  static std::size_t Bytes(std::int64_t channels) {
    return (sizeof(RuleInputsPart) +
            static_cast<std::size_t>(4 * channels) * sizeof(std::uint32_t) + 15) /
           16 * 16;
  }
  ADA_HOST_DEVICE std::uint32_t* magnitudes() { return reinterpret_cast<std::uint32_t*>(this + 1); }
  ADA_HOST_DEVICE const std::uint32_t* magnitudes() const {
    return reinterpret_cast<const std::uint32_t*>(this + 1);
  }
};

// What the decision reads; null: it does not.
struct JoinedRuleInputs {
  TensorMoments *dy = nullptr, *w = nullptr;  // w: of a batch norm's factors
  LogSums* logs = nullptr;
};

// Writes this process's part, and leaves magnitudes as the next pass wants them. For all channels,
// and once where there are none.
// Body of ForEach over the channels, or one.
struct PutObservation {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (i == 0) {
      if (dy != nullptr) part->dy = {*dy, dy_values};
      if (w != nullptr) part->w = {*w, w_values};
      if (logs != nullptr) part->logs = *logs;
    }
    if (i >= channels) return;
    std::uint32_t* const all[] = {dy_magnitudes.low, dy_magnitudes.high, w_magnitudes.low,
                                  w_magnitudes.high};
    for (int k = 0; k < 4; ++k) {
      part->magnitudes()[k * channels + i] = all[k][i];
      all[k][i] = 0;
    }
  }

  const TensorMoments *dy, *w;
  double dy_values, w_values;
  const LogMoments* logs;
  ChannelMagnitudes dy_magnitudes, w_magnitudes;
  std::int64_t channels;
  RuleInputsPart* part;
};

// Joins the parts of all processes, which lie `bytes` apart; for the same indices.
struct JoinObservations {
  ADA_HOST_DEVICE const RuleInputsPart& PartOf(int rank) const {
    return *reinterpret_cast<const RuleInputsPart*>(parts + static_cast<std::size_t>(rank) * bytes);
  }
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (i == 0) JoinSums();
    if (i >= channels) return;
    std::uint32_t* const all[] = {dy_magnitudes.low, dy_magnitudes.high, w_magnitudes.low,
                                  w_magnitudes.high};
    for (int k = 0; k < 4; ++k) {
      std::uint32_t largest = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::uint32_t one = PartOf(rank).magnitudes()[k * channels + i];
        largest = one > largest ? one : largest;
      }
      all[k][i] = largest;
    }
  }
  ADA_HOST_DEVICE void JoinSums() const {
    if (to.dy != nullptr)
      *to.dy =
          JoinedMoments(ranks, [this](int rank) -> const MomentsPart& { return PartOf(rank).dy; });
    if (to.w != nullptr)
      *to.w =
          JoinedMoments(ranks, [this](int rank) -> const MomentsPart& { return PartOf(rank).w; });
    if (to.logs == nullptr) return;
    LogMoments all = {0, 0, 0};
    for (int rank = 0; rank < ranks; ++rank) all = JoinLogs(all, PartOf(rank).logs);
    *to.logs = SumsOf(all);
  }

  const std::byte* parts;
  std::size_t bytes;
  int ranks;
  JoinedRuleInputs to;
  ChannelMagnitudes dy_magnitudes, w_magnitudes;
  std::int64_t channels;
};

// Stores the observations of all processes, unless some value is not finite. One block, one thread
// for each bin. Phase 0 evaluates WantsTail before anything is stored, because FinishTail changes
// its result.
struct JoinTailsKernel {
  static constexpr int kThreads = scaling::ExponentTail::kBins, kPhases = 2;
  struct Shared {
    bool wanted;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      if (at.thread == 0) shared.wanted = scaling::WantsTail(*scaler);
      return;
    }
    const std::uint32_t max_bits = MaxBits();
    if (!shared.wanted || max_bits >= kInfinityBits) return;
    scaler->state.tail.bins[at.thread] = Sum([&](const TailPart& p) { return p.bins[at.thread]; });
    if (at.thread == 0)
      scaling::FinishTail(*scaler, Sum([](const TailPart& p) { return p.nonzero; }),
                          static_cast<double>(OfBits(max_bits)));
  }

  scaling::LayerScaler* scaler;
  const TailPart* parts;  // by process
  int ranks;

 private:
  ADA_HOST_DEVICE std::uint32_t MaxBits() const {
    std::uint32_t largest = 0;
    for (int rank = 0; rank < ranks; ++rank)
      largest = parts[rank].max_bits > largest ? parts[rank].max_bits : largest;
    return largest;
  }
  template <class Count>
  ADA_HOST_DEVICE std::int64_t Sum(Count&& count) const {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += count(parts[rank]);
    return sum;
  }
};

// --- Messages ---

// What one process sees, as AlphaRule has it; null: the rule does not look at it.
struct OwnRuleInputs {
  const TensorMoments *dy = nullptr, *w = nullptr;  // w: where processes have weights of their own
  std::int64_t w_values = 0;
  const LogMoments* logs = nullptr;
  ChannelMagnitudes dy_magnitudes{}, w_magnitudes{};
  std::int64_t channels = 0;  // of the magnitudes; 0: there are none
};

// Belongs to an AlphaRule. A message has a fixed size, that of all the rule may look at, whatever
// this pass's decision needs: processes have to agree on it without asking.
class JoinedRule {
 public:
  // Works in a context that has a link.
  JoinedRule(const Context& context, const OwnRuleInputs& here);
  // Launches all that leads from what this process has seen, of `dy_values` values, to what all
  // have.
  void Join(std::int64_t dy_values) const;
  const JoinedRuleInputs& all() const { return all_; }
  const ChannelMagnitudes& dy_magnitudes() const { return dy_magnitudes_; }
  const ChannelMagnitudes& w_magnitudes() const { return w_magnitudes_; }

 private:
  Context context_;
  OwnRuleInputs here_;
  std::size_t bytes_;
  std::byte *part_, *parts_;
  JoinedRuleInputs all_;
  ChannelMagnitudes dy_magnitudes_{}, w_magnitudes_{};
};

// The same of what exact_range observes after the decision.
// The kernel that observes writes part() in place of the scaler's tail; Join launches what gathers
// the parts of all and hands their sum to the scaler.
class JoinedTail {
 public:
  JoinedTail(const Context& context, scaling::LayerScaler* scaler);
  TailPart* part() const { return part_; }
  void Join() const;

 private:
  Context context_;
  scaling::LayerScaler* scaler_;
  TailPart *part_, *parts_;
};

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
  // Launches all that leads to alpha() and to the scale of dx, or nothing where the launch that
  // took the moments of dy has done so.
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
  DecideByMoments ByMoments() const {
    return {scaler_, dy_.moments, weights_.moments, dy_.scale, dx_.scale};
  }

  Stream& stream_;
  NextDecisions& next_decisions_;
  scaling::LayerScaler* scaler_;
  Gradient dy_, dx_;
  RuleWeights weights_;
  LogMoments* log_blocks_ = nullptr;  // null: logarithms are never wanted; likewise the others
  std::uint32_t* logs_finished_ = nullptr;
  LogSums* logs_ = nullptr;
  LogMoments* log_moments_ = nullptr;
  ChannelMagnitudes dy_magnitudes_{}, w_magnitudes_{};
  TailTotals* tail_ = nullptr;
  std::shared_ptr<NextDecision> next_;  // null: it looks at more than moments
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
