// The settings of all policies, one field for each key of the YAML section `scaling:`, with the
// same name.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "scaling/rules/rule_types.h"

namespace ada::scaling {

// --- The parameters of each policy, with its defaults --------------------------------------------

// The state machine of `dynamic`. The defaults of each preset are in presets.cpp; what has no key
// (types, windows, kinds of machines) is in its DynamicTraits.
struct DynamicParameters {
  std::string preset = "pytorch";
  double init_scale = 65536;  // 0: max_scale
  double growth_factor = 2;
  double backoff_factor = 0.5;  // 0: 1 / growth_factor; if the original divides, by 1 / this
  std::int64_t growth_interval = 2000;
  double min_scale = 0, max_scale = 0;          // 0: no bound
  std::int64_t hysteresis = 1;                  // overflows needed before the scale falls
  bool consecutive_hysteresis = false;          // a clean attempt restores it
  double tolerance = 0;                         // share of attempts that may overflow
  bool error_at_min_scale = false;              // an overflow at the floor ends the run
  double init_lg_scale = 20, lg_growth = 1e-3;  // guided_diffusion: log2 of the scale, its growth
  std::int64_t min_window = 20, max_window = 1000;  // mindformers: ends of its list of windows
};

// `fan`: the number of terms in the sums of dx.
enum class Fan : std::uint8_t { kExact, kReference };

// One layer under `adaptive`.
struct AdaptiveSettings {
  LayerMethod method = LayerMethod::kApproxRange;
  double scale = 1;                   // method fixed
  std::optional<double> total_scale;  // S of dx, whatever S of dy is; comes before `method`
  double underflow_target = 1e-3, scale_upper_bound = 16, accum_upper_bound = 1024;
  std::optional<double> u_min;  // unset: the format's smallest subnormal
  double headroom_bits = 4;     // exact_range
  bool power_of_two = true, reference = false;
  bool batch_norm = false;  // for the policy, not a layer: batch norms choose an alpha too
  bool attention = true;    // likewise, for the gradients within attention
  int update_interval = 1;
  Fan fan = Fan::kExact;
};
// The methods that `adaptive` may have, in the order of lists and messages.
inline constexpr std::array kAdaptiveMethods = {
    LayerMethod::kApproxRange,      LayerMethod::kLognormal,  LayerMethod::kAbsRange,
    LayerMethod::kElementWiseRange, LayerMethod::kExactRange, LayerMethod::kFixed,
};

// One layer under `layerwise_dynamic`.
struct LayerwiseSettings {
  double init_scale = 65536, growth_factor = 2, backoff_factor = 0.5;
  std::int64_t growth_interval = 10000;
  double min_scale = 0x1p-126, max_scale = 0x1p126;
  // dalle: a scale is a double, grows at each clean attempt, and does not fall again within
  // `growth_interval` attempts of a fall.
  bool dalle = false;
};

// Layers that share a scale under `layerwise_dynamic`.
struct ScaleGroup {
  std::string match;  // a glob on the names of layers
};

inline constexpr char kDallePreset[] = "dalle";  // of layerwise_dynamic

// What `scaling.on_overflow` does with gradients that are not finite, under `fixed` and `none`.
struct OverflowRepair {
  enum class Action : std::uint8_t { kSkip, kSanitize } action = Action::kSkip;
  double nan = 0, inf = 1e5;  // kSanitize: what NaN and inf become (-inf: minus that)
};

// beta1 and beta2 are the decay rates of the averages per attempt; log_max is a power of two,
// overflow_std_dev a number of standard deviations.
struct LogMaxParameters {
  bool reference = false;
  double beta1 = 0.99, beta2 = 0.999, overflow_std_dev = 3.09, log_max = 16;
  double min_scale = 1, max_scale = 16384;
};

// update_period is a number of attempts, bin_edge a fraction of the format's largest value,
// threshold a fraction of the values.
struct HistogramParameters {
  double init_scale = 65536;
  std::int64_t update_period = 1000;
  double bin_edge = 0.125, threshold = 1e-7;
  double min_scale = 1, max_scale = 0x1p126;
};

// --- The settings that a user makes --------------------------------------------------------------

// One entry of `scaling.layers`: keys for the layers whose names match; an unset key leaves that of
// `scaling`. For each key the last matching entry wins.
struct LayerSettings {
  std::string match;  // a glob
  // adaptive
  std::optional<LayerMethod> method;
  std::optional<double> scale, total_scale, underflow_target, scale_upper_bound, accum_upper_bound,
      u_min;
  std::optional<double> headroom_bits;
  std::optional<bool> power_of_two;
  std::optional<int> update_interval;
  std::optional<Fan> fan;
  // layerwise_dynamic
  std::optional<double> init_scale, growth_factor, backoff_factor, min_scale, max_scale;
  std::optional<std::int64_t> growth_interval;
  Location where;
};

// The section `scaling:`. Keys that only one policy has are fields of that policy's parameters.
struct Settings {
  std::string policy = "none";
  std::string preset = "pytorch";          // dynamic
  std::string layer_preset = "fairscale";  // layerwise_dynamic
  double scale = 1;                        // fixed, and adaptive's method fixed
  bool reference = false;                  // adaptive, logmax
  // Keys whose default depends on the policy or preset: unset until FillDefaults. A bound that
  // stays unset does not exist.
  std::optional<double> init_scale;  // none, adaptive: S of the logit gradient; others: initial S
  bool auto_init_scale = false;  // `init_scale: auto` (start_scale.h); init_scale is its default
  std::optional<double> growth_factor, backoff_factor;
  std::optional<std::int64_t> growth_interval;
  std::optional<double> min_scale, max_scale;
  std::optional<std::int64_t> hysteresis;
  std::optional<bool> consecutive_hysteresis, error_at_min_scale;
  std::optional<double> tolerance;
  std::optional<double> init_lg_scale, lg_growth;
  std::optional<std::int64_t> min_window, max_window;
  OverflowRepair on_overflow;
  std::vector<ScaleGroup> groups;  // layerwise_dynamic; a layer in none has a scale of its own
  AdaptiveSettings adaptive;
  LogMaxParameters logmax;
  HistogramParameters histogram;
  std::vector<LayerSettings> layers;
  Location where;
};

// Whether min_scale is above max_scale, if both are set (max_scale 0: no ceiling). All checks of
// bounds use this function.
inline bool BoundsCross(std::optional<double> min_scale, std::optional<double> max_scale) {
  return min_scale && max_scale && *max_scale > 0 && *min_scale > *max_scale;
}
// Throws ConfigError unless both are scales and do not cross.
void CheckBounds(double min_scale, double max_scale);
// Returns `value` as fp32, because S is fp32 in every tensor. Throws ConfigError naming `key`
// unless it is positive and finite as fp32.
float CheckedScale(const char* key, double value);

}  // namespace ada::scaling
