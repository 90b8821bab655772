// The presets of `dynamic`: the systems that it follows, each with its parameters and with what has
// no key. A new preset is a row of the table in presets.cpp: lists, the configuration's words and
// its schema take it from there. Where its machine differs in kind, it is a class in
// *_machines.cpp.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "scaling/policies/policies.h"

namespace ada::scaling {

// Which machine counts the attempts.
enum class DynamicKind : std::uint8_t {
  kCounter,   // clean attempts in a row, overflows forgiven one by one: most systems
  kFairseq,   // falls where the share of overflows reaches the tolerance
  kCerebras,  // the same with another share, growth by attempts, clean or not
  kChainer,   // grows with every clean attempt
  kMarian,    // repairs gradients at the floor instead of skipping
};

// In what the systems differ beyond the numbers that have keys.
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
  bool ends_at_zero = false;            // an attempt at scale 0 ends the run
};

struct DynamicPreset {
  std::string_view name;         // as in the YAML: scaling.preset
  DynamicParameters parameters;  // defaults, before Resolved
  std::string_view meaning;
  std::string_view source;                  // repository and file that it follows
  std::vector<std::string_view> more_keys;  // beyond the keys that every preset has
  std::int64_t max_retries = 0;             // attempts that may follow the first of a step
  DynamicTraits traits;
};

// In the order of lists and messages.
const std::vector<DynamicPreset>& DynamicPresets();
// Throws ConfigError listing the known names.
const DynamicPreset& FindDynamicPreset(std::string_view name);
// The keys of the `scaling` section that the preset's machine knows, in the section's order. Throws
// as FindDynamicPreset.
std::vector<std::string_view> KeysOf(std::string_view preset);
std::vector<std::string> PresetNames();
// The presets that have a key of DynamicPreset::more_keys.
std::vector<std::string> PresetsWith(std::string_view key);
// Whether the settings are a preset's that tries a skipped step again.
bool RetriesSkippedSteps(const Settings& settings);

// Fills in what follows from other parameters: a backoff_factor of 0 becomes 1 / growth_factor, an
// init_scale of 0 becomes max_scale.
DynamicParameters Resolved(DynamicParameters parameters);

// The lines of `ada-train policies`, one a preset.
std::vector<std::string> DescribePresets();

}  // namespace ada::scaling
