// `init_scale: auto`: the S with which a run starts is chosen, before its first attempt, from the
// largest logit gradient of its first batch. Between the logits and the first layer gradients may
// become larger: if all layers carry this S for the whole run (`none`), it is halved after each
// attempt whose gradients are not finite, down to 1.
#pragma once
#include <memory>
#include <string>

#include "scaling/policies/policy.h"
#include "scaling/policies/settings.h"

namespace ada::scaling {

struct StartScale {
  double scale = 1;    // a power of two
  std::string reason;  // in words
};

// The largest power of two at which `largest`, the largest |logit gradient| at S = 1, stays
// headroom_bits (of method exact_range) below `u_max`, the largest value of the narrowest format of
// any gradient. 1 if all of these have fp32's range, or if `largest` is 0 or not finite. Not above
// the policy's max_scale and, under approx_range and lognormal, accum_upper_bound; not below its
// min_scale.
StartScale ChooseStart(const Settings& settings, double largest, double u_max);

// The policy of filled-in settings with `init_scale: auto`: the policy that they name, made again
// when Start gives it the init_scale. The chosen scale is part of its state.
// `make`: MakePolicy.
using PolicyMaker = std::unique_ptr<Policy> (*)(const Settings& settings);
std::unique_ptr<Policy> MakeAutoStart(const Settings& settings, PolicyMaker make);

}  // namespace ada::scaling
