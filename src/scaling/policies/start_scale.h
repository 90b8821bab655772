// `init_scale: auto`: the S with which a run starts is chosen from the largest gradient of the
// logits in its first batch, before its first attempt. What lies between the logits and the first
// layer may make gradients larger: where all layers carry this S for good (`none`) it is halved
// after an attempt whose gradients are not finite, down to 1.
#pragma once
#include <memory>
#include <string>

#include "scaling/policies/policies.h"

namespace ada::scaling {

struct StartScale {
  double scale = 1;    // a power of two
  std::string reason;  // in words
};

// The largest power of two at which `largest`, the largest |logit gradient| at S = 1, leaves
// headroom_bits (of method exact_range) below `u_max`, the largest value of the narrowest format
// that any gradient is stored in. 1 where all of these have fp32's range, and where `largest` is 0
// or no number. No larger than the policy's max_scale and, under approx_range and lognormal,
// accum_upper_bound; no smaller than its min_scale.
StartScale ChooseStart(const Settings& settings, double largest, double u_max);

// The policy of filled-in settings that ask for it: the one that they name, made again when Start
// tells it with which init_scale. The chosen scale is part of its state.
std::unique_ptr<Policy> MakeAutoStart(const Settings& settings);

}  // namespace ada::scaling
