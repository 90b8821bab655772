// Start values of one parameter, without a backend: what Initialize uploads where the file names
// nothing else.
#pragma once
#include <cstdint>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"

namespace ada::graph {

// Weights by `scheme`, fan-in and fan-out counted as in torch.nn.init (a convolution's weight
// [out, in, kh, kw] has fan-in in*kh*kw and fan-out out*kh*kw):
//   he_normal      N(0, 2 / fan_in)                 He et al. 2015
//   he_uniform     U(-a, a), a^2 = 6 / fan_in
//   xavier_normal  N(0, 2 / (fan_in + fan_out))     Glorot and Bengio 2010
//   xavier_uniform U(-a, a), a^2 = 6 / (fan_in + fan_out)
// gamma and running_var are 1, all others 0. The same (seed, name, dims) give the same bytes.
std::vector<float> StartValues(const Parameter& parameter, config::InitScheme scheme,
                               std::uint64_t seed);

}  // namespace ada::graph
