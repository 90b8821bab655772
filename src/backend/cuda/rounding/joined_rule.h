// What a layer's rule looks at where several processes share the batch: each one's part goes to
// all, in the stream, one message a decision. Decisions are the same everywhere, then.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/joined_rules.h"

namespace ada::backend::cuda {

// What one process sees, as AlphaRule has it; null: the rule does not look at it.
struct SeenHere {
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
  JoinedRule(const Context& context, const SeenHere& here);
  // Launches all that leads from what this process has seen, of `dy_values` values, to what all
  // have.
  void Join(std::int64_t dy_values) const;
  const SeenOfAll& all() const { return all_; }
  const ChannelMagnitudes& dy_magnitudes() const { return dy_magnitudes_; }
  const ChannelMagnitudes& w_magnitudes() const { return w_magnitudes_; }

 private:
  Context context_;
  SeenHere here_;
  std::size_t bytes_;
  std::byte *part_, *parts_;
  SeenOfAll all_;
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

}  // namespace ada::backend::cuda
