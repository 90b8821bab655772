// The presets of `dynamic`: the systems that it reproduces, each with its parameters and with what
// has no key. A new preset is a row of the table in presets.cpp; lists, the configuration and its
// schema use that table. If its state machine is of a new kind, it also needs a class in
// *_machines.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/policies/policies.h"

namespace ada::scaling {

// The kind of state machine that counts the attempts.
enum class DynamicKind : std::uint8_t {
  kCounter,     // clean attempts in a row; hysteresis before a fall: most systems
  kFairseq,     // the scale falls when the share of overflows reaches the tolerance
  kCerebras,    // the same with another share; grows after attempts, clean or not
  kChainer,     // grows at every clean attempt
  kMarian,      // at the floor sanitizes gradients instead of skipping
  kGuided,      // moves the logarithm of the scale
  kWindowList,  // grows after a window that is taken from a list
};

// Differences between the systems that have no key.
struct DynamicTraits {
  DynamicKind kind = DynamicKind::kCounter;

  // Arithmetic of the scale:
  bool fp32 = true;             // the type of the scale; false: double
  bool double_factors = false;  // factors are doubles although the scale is fp32
  bool divides = false;         // one factor: the scale falls by dividing by it
  bool finite_growth = false;   // growth to inf is refused
  bool clamps_start = false;    // the initial scale is limited to max_scale
  bool clamps_both = false;     // each change is limited by both bounds, not only the nearer one

  // The window of kCounter: the scale grows at an attempt that growth_interval + lag clean ones
  // preceded; `recounts`: that attempt counts as the first of the next window.
  std::int64_t lag = -1;
  bool recounts = false;
  // Hysteresis of kCounter: growth always restores it, and so does:
  bool refilled_by_fall = false;
  bool refilled_by_clean = false;       // also by DynamicParameters::consecutive_hysteresis
  bool deferred = false;                // a new scale takes effect one attempt later
  std::int64_t overflows_in_a_row = 0;  // if so many, the next ends the run; 0: never
  bool ends_at_zero = false;            // an attempt at scale 0 ends the run
};

struct DynamicPreset {
  std::string_view name;         // as in the YAML: scaling.preset
  DynamicParameters parameters;  // defaults, before Resolved
  std::string_view meaning;
  std::string_view source;                  // repository and file that it follows
  std::vector<std::string_view> more_keys;  // keys besides those that every preset has
  std::int64_t max_retries = 0;             // retries after a step's first attempt
  DynamicTraits traits;
  // Whether it has start, factors, interval, bounds and error_at_min_scale, as nearly all have.
  bool common_keys = true;
};

// In the order of lists and messages.
const std::vector<DynamicPreset>& DynamicPresets();
// Throws ConfigError listing the known names.
const DynamicPreset& FindDynamicPreset(std::string_view name);
// The keys of the `scaling` section that the preset's machine has, in the section's order. Throws
// like FindDynamicPreset.
std::vector<std::string_view> KeysOf(std::string_view preset);
std::vector<std::string> PresetNames();
// Whether a preset has a key that nearly all have (DynamicPreset::common_keys).
bool HasCommonKeys(std::string_view preset);
// The presets that have a certain key of DynamicPreset::more_keys.
std::vector<std::string> PresetsWith(std::string_view key);
// Whether the settings name a preset that retries skipped steps.
bool RetriesSkippedSteps(const Settings& settings);

// Fills in what follows from other parameters: a backoff_factor of 0 becomes 1 / growth_factor, an
// init_scale of 0 becomes max_scale.
DynamicParameters Resolved(DynamicParameters parameters);

// The lines of `ada-train policies`, one a preset.
std::vector<std::string> DescribePresets();

}  // namespace ada::scaling
