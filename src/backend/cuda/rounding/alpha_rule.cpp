// Launches of a layer's decision; see alpha_rule.h.
#include "backend/cuda/rounding/alpha_rule.h"

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "error.h"

namespace ada::backend::cuda {

JoinedRule::JoinedRule(const Context& context, const OwnRuleInputs& here)
    : context_(context),
      here_(here),
      bytes_(RuleInputsPart::Bytes(here.channels)),
      part_(context.Allocate<std::byte>(static_cast<std::int64_t>(bytes_))),
      parts_(
          context.Allocate<std::byte>(static_cast<std::int64_t>(bytes_) * context.link->ranks())) {
  if (here.dy != nullptr) all_.dy = context.Allocate<TensorMoments>(1);
  if (here.w != nullptr) all_.w = context.Allocate<TensorMoments>(1);
  if (here.logs != nullptr) all_.logs = context.Allocate<LogSums>(1);
  if (here.channels == 0) return;
  // Joined magnitudes lie apart from this process's own: DecideKernel reads the ones and leaves
  // zeros, PutObservation does so with the others.
  auto* memory = context.AllocateZeroed<std::uint32_t>(4 * here.channels);
  dy_magnitudes_ = {memory, memory + here.channels};
  w_magnitudes_ = {memory + 2 * here.channels, memory + 3 * here.channels};
}

void JoinedRule::Join(std::int64_t dy_values) const {
  // One thread a channel for the magnitudes; the first does the moments and logarithms as well.
  const std::int64_t items = std::max<std::int64_t>(here_.channels, 1);
  ForEach(
      context_.stream, items,
      PutObservation{here_.dy, here_.w, static_cast<double>(dy_values),
                     static_cast<double>(here_.w_values), here_.logs, here_.dy_magnitudes,
                     here_.w_magnitudes, here_.channels, reinterpret_cast<RuleInputsPart*>(part_)});
  context_.link->AllGatherInStream(part_, bytes_, parts_);
  ForEach(context_.stream, items,
          JoinObservations{parts_, bytes_, context_.link->ranks(), all_, dy_magnitudes_,
                           w_magnitudes_, here_.channels});
}

JoinedTail::JoinedTail(const Context& context, scaling::LayerScaler* scaler)
    : context_(context),
      scaler_(scaler),
      part_(context.Allocate<TailPart>(1)),
      parts_(context.Allocate<TailPart>(context.link->ranks())) {}

void JoinedTail::Join() const {
  context_.link->AllGatherInStream(part_, sizeof(TailPart), parts_);
  Launch(context_.stream, JoinTailsKernel{scaler_, parts_, context_.link->ranks()}, 1);
}

AlphaRule::AlphaRule(const Context& context, scaling::LayerScaler* scaler, const Gradient& dy,
                     const Gradient& dx, const RuleWeights& weights)
    : stream_(context.stream),
      next_decisions_(context.next_decisions),
      scaler_(scaler),
      dy_(dy),
      dx_(dx),
      weights_(weights) {
  ADA_CHECK(scaler != nullptr);
  const scaling::LayerRule& rule = context.Host(scaler)->rule;
  ADA_CHECK(!scaling::MayNeedMoments(rule) || dy.moments != nullptr);
  if (rule.method == scaling::LayerMethod::kLognormal && !rule.has_weight) {
    log_blocks_ = context.Allocate<LogMoments>(MostFlatBlocksOf(dy.tensor.shape.numel()));
    logs_finished_ = context.AllocateZeroed<std::uint32_t>(1);
    logs_ = context.Allocate<LogSums>(1);
  }
  if (rule.method == scaling::LayerMethod::kElementWiseRange && rule.has_weight) {
    auto* memory = context.AllocateZeroed<std::uint32_t>(4 * weights.channels);
    dy_magnitudes_ = {memory, memory + weights.channels};
    w_magnitudes_ = {memory + 2 * weights.channels, memory + 3 * weights.channels};
  }
  if (rule.method == scaling::LayerMethod::kExactRange)
    tail_ = context.AllocateZeroed<TailTotals>(1);
  // Memory is allocated by the rule's method, which is a constant of the run; what a decision
  // really needs is known on the device only, where rules keep their state.
  if (RulesLink(context.link) != nullptr) {
    MakeJoined(context, rule);
    return;
  }
  const bool by_moments =
      dy.moments != nullptr && logs_ == nullptr && dy_magnitudes_.low == nullptr && !weights.own;
  if (by_moments) next_ = next_decisions_.Add(ByMoments());
}

// What of this process's observation goes to the others. Weights are the same in all processes, so
// that only a norm's factors (RuleWeights::own) are joined.
void AlphaRule::MakeJoined(const Context& context, const scaling::LayerRule& rule) {
  if (tail_ != nullptr) joined_tail_.emplace(context, scaler_);
  if (logs_ != nullptr) log_moments_ = context.Allocate<LogMoments>(1);
  OwnRuleInputs here;
  if (scaling::MayNeedMoments(rule)) here.dy = dy_.moments;
  if (weights_.own) here.w = weights_.moments, here.w_values = weights_.channels;
  here.logs = log_moments_;
  here.dy_magnitudes = dy_magnitudes_, here.w_magnitudes = w_magnitudes_;
  if (dy_magnitudes_.low != nullptr) here.channels = weights_.channels;
  if (here.dy != nullptr || here.logs != nullptr || here.channels > 0)
    joined_.emplace(context, here);
}

void AlphaRule::Decide(const Pass& pass) const {
  if (next_ != nullptr && next_decisions_.IsMade(*next_)) return;
  if (logs_ != nullptr) TakeLogs(pass);
  if (dy_magnitudes_.low != nullptr) TakeProducts(pass);
  // The kernel reads the observations of this process or, if several decide together, of all.
  DecideKernel decide{ByMoments(), logs_, dy_magnitudes_, w_magnitudes_, weights_.channels};
  if (joined_) {
    joined_->Join(pass.rows * dy_.tensor.shape.per_image());
    const JoinedRuleInputs& all = joined_->all();
    decide.by.dy_moments = all.dy, decide.logs = all.logs;
    if (all.w != nullptr) decide.by.w_moments = all.w;
    decide.dy = joined_->dy_magnitudes(), decide.w = joined_->w_magnitudes();
  }
  Launch(stream_, decide, 1);
}

void AlphaRule::TakeLogs(const Pass& pass) const {
  const std::int64_t values = pass.rows * dy_.tensor.shape.per_image();
  const FlatBlocks flat = FlatBlocksOf(values);
  Launch(stream_,
         LogsKernel{scaler_, SpanOf(dy_.tensor), values, flat.size, log_blocks_, logs_finished_,
                    logs_, log_moments_},
         flat.blocks);
}

void AlphaRule::TakeProducts(const Pass& pass) const {
  const Shape& shape = dy_.tensor.shape;
  ADA_CHECK(shape.c == weights_.channels);
  const std::int64_t pixels = pass.rows * shape.h * shape.w;
  // Pixels are cut for enough blocks of threads; magnitudes are joined by maxima of bits, so that
  // cuts do not change the result.
  const int cuts = static_cast<int>(std::clamp<std::int64_t>(pixels / 256, 1, 64));
  Launch(stream_,
         ImageMagnitudesKernel{scaler_, SpanOf(dy_.tensor), pixels, shape.c, cuts, dy_magnitudes_},
         ImageMagnitudesKernel::Blocks(shape.c, cuts));
  Launch(stream_,
         RowMagnitudesKernel{scaler_, weights_.rows, weights_.values, weights_.inputs,
                             weights_.group, w_magnitudes_},
         static_cast<int>(weights_.channels));
}

}  // namespace ada::backend::cuda
