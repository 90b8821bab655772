// What a layer of policy adaptive would choose if it knew the gradient that it is about to round.
#pragma once
#include "core/exponent_bins.h"
#include "scaling/rules/rules.h"
#include "what_if/step_histograms.h"

namespace ada::what_if {

// S_out of a layer whose dx has these exponents: the rule of method exact_range (scaling/rules.h),
// but of this very step instead of the last one; the largest value is taken to be the upper end of
// its bin. Methods that see the mean and deviation of dy (approx_range, lognormal, abs_range,
// element_wise_range) are judged by the same rule, the first two within their bounds SB and AB;
// method fixed has its constant. `rule` is the layer's; u_min and u_max, where they are 0, become
// those of `format`, the format of dx.
float ScaleWithForesight(scaling::LayerRule rule, const NumberFormat& format,
                         const ExponentBins& dx, float scale_in);

}  // namespace ada::what_if
