// A convolution or linear map over a fixed number of images, in fp32, as oneDNN primitives of one
// thread. Knows no formats, scales or counts: those are matmul_op's. One set per worker thread:
// primitives are never shared.
#pragma once
#include <cstddef>
#include <memory>
#include <string>

#include "backend/cpu/matmul/matmul_geometry.h"
#include "number/tensor.h"

namespace ada::backend::cpu {

// Weights and their gradient are in layouts of oneDNN's choice, between which and PyTorch's order
// ToLayout and FromLayout go. Errors: std::bad_alloc where memory is lacking, DeviceError where
// oneDNN has no implementation or may not run it, InternalError for a fault of the call.
class Matmul {
 public:
  virtual ~Matmul() = default;
  // Made in the thread that will call it. gradient: the layout of dw; null: oneDNN's choice.
  static std::unique_ptr<Matmul> Make(const MatmulGeometry& geometry, int images,
                                      const WeightLayout* gradient);

  virtual void Forward(const float* x, const float* w, const float* b, float* y,
                       std::byte* scratchpad) = 0;
  virtual void BackwardWeights(const float* x, const float* dy, float* dw, float* db,
                               std::byte* scratchpad) = 0;
  virtual void BackwardData(const float* dy, const float* w, float* dx, std::byte* scratchpad) = 0;

  virtual std::shared_ptr<const WeightLayout> forward_layout() const = 0;
  virtual std::shared_ptr<const WeightLayout> data_layout() const = 0;
  virtual std::shared_ptr<const WeightLayout> gradient_layout() const = 0;
  // The most that any of the three calls needs.
  virtual std::size_t scratchpad_bytes() const = 0;
};

// "oneDNN 2.6.3"
std::string OnednnVersion();

// A transposed convolution, computed by the convolution that it transposes: the output is that
// one's data gradient, the data gradient that one's output, and in the weight gradient x and dy are
// exchanged. This is the convolution from y to x of which `geometry`, transposed, is the
// transposition.
MatmulGeometry ConvolutionOf(const MatmulGeometry& geometry);

// convolution: of ConvolutionOf(geometry), for as many images.
std::unique_ptr<Matmul> MakeTransposed(const MatmulGeometry& geometry, int images,
                                       std::unique_ptr<Matmul> convolution);

}  // namespace ada::backend::cpu
