// The weight gradient of a layer by kernels of our own: some images at a time, into partial
// gradients of a layout of its own that may be added value by value.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/gradient_group.h"

namespace ada::backend::cpu {

// Implemented on AMX tiles, directly and by Winograd's algorithm; KernelChunks owns one. Run and
// RunSlice are const: workers call them at the same time, with partial gradients of their own.
class PartialGradients {
 public:
  virtual ~PartialGradients() = default;

  // Scratch memory that one call of at most `images` images needs.
  virtual std::size_t scratch_bytes(int images) const = 0;
  // Values of a partial gradient: tiles of dw, then of db.
  virtual std::int64_t partial_values() const = 0;

  // partial = (first) or += dw and, with a bias, db of `images` images. x, dy: the first image, in
  // any storage. `partial` and `scratch` are aligned to 64 bytes. Products are exact, sums fp32;
  // the result depends only on the values and `images`, and every value of `partial` is written. A
  // value of x or dy that is not finite makes every value of dw to which it contributes not finite
  // (perhaps NaN where fp32 arithmetic would give inf).
  virtual void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                   std::byte* scratch) const = 0;

  // More than 1: RunSlice makes what the partial gradient holds of one slice of the output
  // channels, of all images of a batch at once; so that layers with many weights and one position
  // need no more than one partial gradient. Depends on the values and `images` alone, as Run.
  virtual int slices() const { return 1; }
  virtual void RunSlice(int /*slice*/, TensorSpan /*x*/, TensorSpan /*dy*/, int /*images*/,
                        float* /*partial*/, std::byte* /*scratch*/) const {}

  // From a partial gradient: what `group`, one of groups(), holds of dw, in PyTorch's order
  // [out][in][kernel_h][kernel_w]; and db [out].
  virtual const std::vector<GradientGroup>& groups() const = 0;
  virtual void ToPlain(const GradientGroup& group, const float* partial, float* dw) const = 0;
  virtual void BiasToPlain(const float* partial, float* db) const = 0;
  // partial = (first) or += dw and db.
  virtual void AddPlain(const float* dw, const float* db, bool first, float* partial) const = 0;
};

}  // namespace ada::backend::cpu
