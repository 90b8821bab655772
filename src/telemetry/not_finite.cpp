// Keeps the first event of each stretch of steps that are not finite, and makes the advice for its
// cause.
#include "telemetry/not_finite.h"

#include <cmath>

#include "io/tensor_names.h"
#include "io/text.h"

namespace ada::telemetry {
namespace {

// A policy that searches for its scale skips fewer consecutive steps than this: a dynamic scale
// that starts at 2^16 and halves at each skipped step is 1 after 16 of them.
constexpr std::int64_t kSearch = 20;

constexpr NotFiniteCause kCauses[] = {NotFiniteCause::kOutgrown, NotFiniteCause::kBlocks,
                                      NotFiniteCause::kTotalScale, NotFiniteCause::kLayerScale};

// Whether the cause is a scale beside the policy's S.
bool IsOfLayerScale(NotFiniteCause cause) {
  return cause == NotFiniteCause::kTotalScale || cause == NotFiniteCause::kLayerScale;
}

// The name without its magnitude.
std::string TensorText(const FirstNotFinite& first) {
  return first.layer == "input" ? first.layer : first.layer + "." + first.tensor;
}

// AdviceText in few words.
// In the order in which causes rule each other out, as AdviceText has them.
std::string PointText(const FirstNotFinite& first) {
  if (IsOfLostGradients(first))
    return "gradients were lost before, from step " + std::to_string(first.lost->step) + " on";
  if (IsOfOptimizer(first)) return "the optimizer's update did it";
  if (first.layer.empty()) return "a smaller optimizer.lr may help";
  if (first.cause == NotFiniteCause::kBlocks) return "its block-scaled format did it";
  if (!IsOfScale(first)) return "a loss scale does not help";
  if (first.cause == NotFiniteCause::kTotalScale) return "a smaller total_scale helps";
  if (first.cause == NotFiniteCause::kLayerScale) return "a smaller scale of its layer helps";
  return first.scale > 1 ? "a smaller loss scale helps" : "a wider format of gradients helps";
}

}  // namespace

std::string CauseText(NotFiniteCause cause) {
  switch (cause) {
    case NotFiniteCause::kNone:
      return "";
    case NotFiniteCause::kOutgrown:
      return "precision.overflow: saturate would keep it: it outgrew its tensor's own scale, and "
             "overflow: format makes it infinite";
    case NotFiniteCause::kBlocks:
      return "its block-scaled format makes inf or NaN of blocks of finite values "
             "(precision.operands; broken_blocks in blocks.csv)";
    case NotFiniteCause::kTotalScale:
      return "its S, a total_scale of scaling.layers, is too large, or the gradient's format too "
             "narrow";
    case NotFiniteCause::kLayerScale:
      return "the S that its layer chose (scales.csv) is too large, or the gradient's format too "
             "narrow";
  }
  return "";
}

std::string NameText(const LostFromTheStart& lost) {
  return lost.layer + "." + lost.tensor +
         Formatted(" lost %.3g %% of its values in step ", lost.pct) + std::to_string(lost.step) +
         " (" + lost.format + " at S = " + ShortestText(lost.scale) + ")";
}

bool HasNumber(const FirstNotFinite& first) {
  const std::string& value = first.value;
  return !value.empty() && value != "inf" && value != "-inf" && value != "nan" && value != "-nan";
}

std::string NameText(const FirstNotFinite& first) {
  if (first.layer.empty()) return "no rounded tensor: a product or the loss itself";
  return TensorText(first) + " (largest magnitude " + first.value + ")";
}

bool IsOfScale(const FirstNotFinite& first) {
  return CarriesS(first.tensor) && first.scale > 0 && !first.layer.empty() &&
         (first.cause == NotFiniteCause::kNone || IsOfLayerScale(first.cause));
}

// Images that leave their format do so whatever gradients are, and a gradient that overflowed has
// had too much of a scale.
bool IsOfLostGradients(const FirstNotFinite& first) {
  return first.lost && first.step > first.lost->step && first.cause == NotFiniteCause::kNone &&
         first.layer != "input" && !IsOfScale(first);
}

bool IsOfOptimizer(const FirstNotFinite& first) {
  return first.tensor == "w" && !HasNumber(first) && first.step > 1;
}

std::string AdviceText(const FirstNotFinite& first) {
  if (first.cause != NotFiniteCause::kNone) return CauseText(first.cause);
  if (IsOfLostGradients(first))
    return "gradients were lost before that: " + NameText(*first.lost) +
           "; a scale that keeps them, or a wider format of gradients, comes first";
  if (IsOfOptimizer(first))
    return "a loss scale does not help: gradients were finite and the weights are not, so the "
           "optimizer's update did it (optimizer.lr; under Adam optimizer.epsilon too)";
  if (first.tensor == "w")
    return HasNumber(first)
               ? "a loss scale does not help: the weight leaves its format (precision.weights)"
               : "a loss scale does not help: the weights were so from the start (model.init)";
  if (first.layer == "input")
    return "a loss scale does not help: the images leave the format before the network "
           "(data.normalize, precision.activations)";
  if (first.tensor == "y")
    return "a loss scale does not help: it multiplies gradients, and this is of the forward pass "
           "(a smaller optimizer.lr, warm-up, a format with more range)";
  if (IsOfScale(first))
    return "a loss scale helps because the tensor carries it: S = " + ShortestText(first.scale) +
           " is too large, or the gradient's format too narrow";
  if (first.tensor == "dw")
    return "a loss scale does not help: the sum over the batch leaves fp32 or its own format "
           "(precision.weight_gradients, a smaller optimizer.lr)";
  return "a smaller optimizer.lr, warm-up or a format with more range may help";
}

// A stretch begins with the first bad step after a good one.
void Finiteness::Add(const StepRow& row) {
  ++steps_;
  loss_is_finite_ = std::isfinite(row.loss);
  const bool bad = row.overflow || !loss_is_finite_;
  if (bad && begin_ == 0) {
    begin_ = row.step;
    scale_ = row.scale;
  }
  if (!bad) begin_ = 0;
}

void Finiteness::Add(const EventRow& row) {
  if (row.event != "skip" && row.event != "retry" && row.event != "sanitize") return;
  // The first event of a stretch is kept: those of later steps are consequences.
  if (row.step != event_step_ + 1) event_ = row;
  event_step_ = row.step;
}

// Skipped steps by themselves are normal while a policy searches for its scale; a loss that is not
// finite, a run without a good step, or many in a row are not.
std::int64_t Finiteness::since() const {
  if (begin_ == 0) return 0;
  const std::int64_t stretch = event_step_ - begin_ + 1;
  const bool all = begin_ == 1;
  return !loss_is_finite_ || all || stretch >= kSearch ? begin_ : 0;
}

FirstNotFinite Finiteness::first(const std::optional<LostFromTheStart>& lost) const {
  FirstNotFinite first;
  first.lost = lost;
  first.step = begin_;
  first.scale = scale_;
  if (event_.step != begin_) return first;
  first.layer = event_.layer, first.tensor = event_.tensor, first.value = event_.value;
  for (const NotFiniteCause cause : kCauses)
    if (event_.message.ends_with(CauseText(cause))) first.cause = cause;
  return first;
}

std::string Finiteness::Text(const std::optional<LostFromTheStart>& lost) const {
  if (since() == 0) return "";
  const FirstNotFinite tensor = first(lost);
  return "not finite from step " + std::to_string(since()) + " on, first tensor " +
         NameText(tensor) + ": " + AdviceText(tensor);
}

std::string Finiteness::ShortText(const std::optional<LostFromTheStart>& lost) const {
  if (since() == 0) return "";
  const FirstNotFinite tensor = first(lost);
  return "not finite from step " + std::to_string(since()) + " on: " + PointText(tensor) +
         (tensor.layer.empty() ? "" : "; first " + TensorText(tensor));
}

}  // namespace ada::telemetry
