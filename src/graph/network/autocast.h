// The formats that torch.autocast gives the layers of a network by its op lists for CUDA or for
// CPUs, as far as a graph can say them.
#pragma once
#include <vector>

#include "core/number_format.h"
#include "graph/network/precision.h"
#include "graph/network/shapes.h"

namespace ada::graph {

// By value (0: the input): what its layer gives, `low` being fp16 or bf16.
//   products (conv2d, linear, attention) low: they round what they read, and what they give
//   kinds whose row says autocast_fp32   fp32 (on_cpu: autocast_cpu_fp32, which are fewer: norms
//                                        and softmax give what they get)
//   all others                           fp32 where one of their inputs is, else low
// The images are fp32. torch rounds an fp32 value for each product that reads it: where nothing but
// products reads one, it is rounded once, where it is made, to the same values; where others read
// it too it stays fp32, for products as well. Gradients are as the values, weights low, dw fp32.
std::vector<LayerFormats> AutocastFormats(const Network& network, const NumberFormat& low,
                                          bool on_cpu = false);

}  // namespace ada::graph
