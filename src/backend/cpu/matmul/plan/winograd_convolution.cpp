// See winograd_convolution.h.
#include "backend/cpu/matmul/plan/winograd_convolution.h"

#include <algorithm>

#include "backend/cpu/context.h"

namespace ada::backend::cpu {

WinogradConvolution::WinogradConvolution(const WinogradKernels& kernels, const Shape& in,
                                         const Shape& out, std::array<int, 2> padding,
                                         bool data_gradient, int block)
    : kernels_(kernels),
      in_(in),
      out_(out),
      padding_(padding),
      data_gradient_(data_gradient),
      block_(block),
      batches_(kernels, out.h, out.w, std::int64_t{kWinogradPlaces} * 16 * (in_blocks() + 2)) {}

WinogradConvolution WinogradConvolution::Forward(const WinogradKernels& kernels,
                                                 const MatmulGeometry& g, int block) {
  return {kernels, g.x, g.y, g.padding, false, block};
}
// The data gradient of a 3x3 convolution with stride 1 is one of dy with the weights turned round
// and the padding 2 - p.
WinogradConvolution WinogradConvolution::DataGradient(const WinogradKernels& kernels,
                                                      const MatmulGeometry& g, int block) {
  return {kernels, g.y, g.x, {2 - g.padding[0], 2 - g.padding[1]}, true, block};
}

std::size_t WinogradConvolution::scratch_bytes(int) const {
  const std::int64_t sums = 2 * kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), 1);
  return static_cast<std::size_t>(v_values() + sums) * 4;
}
std::size_t WinogradConvolution::weight_bytes() const {
  return static_cast<std::size_t>(panels() * panel_values()) * 4;
}

// U takes 16 values where a kernel has 9: packed weights are larger than direct ones.
bool WinogradConvolution::PackPanel(int panel, const float* plain, std::byte* weights) const {
  WinogradWeightsArgs a;
  // Weights lie as [outputs of the layer][its inputs][3][3].
  const std::int64_t row = 9 * (data_gradient_ ? out_.c : in_.c);
  a.out_step = data_gradient_ ? 9 : row, a.in_step = data_gradient_ ? row : 9;
  a.plain = plain + 16 * panel * a.out_step;
  a.outs = std::min(16, static_cast<int>(out_.c) - 16 * panel), a.ins = static_cast<int>(in_.c);
  a.turned = data_gradient_;
  a.u = reinterpret_cast<float*>(weights) + panel * panel_values();
  return kernels_.transform_weights(a);
}

void WinogradConvolution::Run(const Call& call) const {
  WinogradInputArgs input;
  input.x = {call.in, static_cast<int>(in_.h), static_cast<int>(in_.w), static_cast<int>(in_.c)};
  input.top = padding_[0], input.left = padding_[1];
  input.v = reinterpret_cast<float*>(call.scratch);
  WinogradConvolveArgs a;
  a.v = input.v, a.in_channels = input.x.c;
  a.weights = reinterpret_cast<const float*>(call.weights);
  a.sums = input.v + v_values();
  a.bias = call.bias, a.factor = call.factor;
  a.y = {call.out, static_cast<int>(out_.h), static_cast<int>(out_.w), static_cast<int>(out_.c)};
  a.block = block_, a.largest = call.largest;
  batches_.ForEach(call.images, [&](const WinogradBatch& batch) {
    input.batch = a.batch = batch;
    kernels_.transform_input(input);
    kernels_.convolve(a);
  });
}

}  // namespace ada::backend::cpu
