// In what the systems behind the presets differ beyond the numbers that have YAML keys: data for
// the state machines of `dynamic` (POLICIES 2). The table is in presets.cpp.
#pragma once
#include <cstdint>

namespace ada::scaling {

// Which machine counts the attempts.
enum class DynamicKind : std::uint8_t {
  kCounter,   // clean attempts in a row, overflows forgiven one by one: most systems
  kFairseq,   // falls where the share of overflows reaches the tolerance
  kCerebras,  // the same with another share, growth by attempts, clean or not
  kChainer,   // grows with every clean attempt
  kMarian,    // repairs gradients at the floor instead of skipping
};

struct DynamicTraits {
  DynamicKind kind = DynamicKind::kCounter;

  // The scale's arithmetic.
  bool fp32 = true;             // the type of the scale; false: double
  bool double_factors = false;  // the factors of an fp32 scale stay doubles
  bool divides = false;         // one factor both ways: the scale falls by division
  bool finite_growth = false;   // growth to inf is refused
  bool clamps_start = false;    // the start is cut to max_scale
  bool clamps_both = false;     // each move is cut to both bounds, not only to the one it nears

  // The window of kCounter: grows when growth_interval + lag clean attempts came before;
  // `recounts`: the growing attempt is the first of the next window.
  std::int64_t lag = -1;
  bool recounts = false;
  // Hysteresis of kCounter: growth always refills it, these do as well.
  bool refilled_by_fall = false;
  bool refilled_by_clean = false;       // also by DynamicParameters::consecutive_hysteresis
  bool deferred = false;                // a new scale is in force one attempt late
  std::int64_t overflows_in_a_row = 0;  // one more ends the run; 0: never
};

}  // namespace ada::scaling
