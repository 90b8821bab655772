// Three steps of one decision: put what is seen here into a message, gather the messages, join them
// into what DecideKernel reads.
#include "backend/cuda/rounding/joined_rule.h"

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"

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
  // zeros, PutSeen does so with the others.
  auto* memory = context.AllocateZeroed<std::uint32_t>(4 * here.channels);
  dy_magnitudes_ = {memory, memory + here.channels};
  w_magnitudes_ = {memory + 2 * here.channels, memory + 3 * here.channels};
}

void JoinedRule::Join(std::int64_t dy_values) const {
  // One thread a channel for the magnitudes; the first does the moments and logarithms as well.
  const std::int64_t items = std::max<std::int64_t>(here_.channels, 1);
  ForEach(context_.stream, items,
          PutSeen{here_.dy, here_.w, static_cast<double>(dy_values),
                  static_cast<double>(here_.w_values), here_.logs, here_.dy_magnitudes,
                  here_.w_magnitudes, here_.channels, reinterpret_cast<RuleInputsPart*>(part_)});
  context_.link->AllGatherInStream(part_, bytes_, parts_);
  ForEach(context_.stream, items,
          JoinSeen{parts_, bytes_, context_.link->ranks(), all_, dy_magnitudes_, w_magnitudes_,
                   here_.channels});
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

}  // namespace ada::backend::cuda
