// One way of computing a convolution or linear layer, some images at a time: in fp32 on oneDNN
// (onednn_chunks.h), or with our own kernels (kernel_chunks.h). matmul_op does what surrounds the
// chunks.
#pragma once
#include <cstdint>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// Some images of one call, whole reduction blocks of x and y; one worker computes it.
struct Chunk {
  const Pass& pass;
  std::int64_t image, images;
  int worker;
};

// Forward, DataGradient, WeightGradient and WeightSlice are called by all workers at the same time,
// with different chunks; all else by one thread while no worker runs. What a call needs of scratch
// memory is reserved before (Prepare).
class ChunkMatmul {
 public:
  virtual ~ChunkMatmul() = default;
  // Prepares chunks of this many images. Must not be called while workers run.
  virtual void Prepare(std::int64_t images) = 0;
  // The weights changed. Not while workers run.
  virtual void Refresh() = 0;

  // y = round(w * x + b), measured, with its channel moments. x, dy: of the chunk's first image.
  // False: these values cannot be computed in this way; what was stored is to be written anew.
  virtual bool Forward(const Chunk& chunk, const TensorSpan& x) = 0;
  // dx = round(alpha * dgrad(dy, w)), measured. False as above.
  virtual bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) = 0;
  // A partial gradient of weights and bias, set by the `first` chunk of those that share it, else
  // added to. False: these values cannot be computed in this way; nothing was added. A result that
  // is not finite says nothing but that.
  virtual bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy,
                              bool first, float* partial) = 0;

  // More than 1: WeightSlice makes what a partial gradient holds of one slice of the output
  // channels, of all images of the batch, which `batch` names; then one is all that is needed.
  // Nothing falls back to fp32.
  virtual int slices() const { return 1; }
  virtual void WeightSlice(int /*slice*/, const Chunk& /*batch*/, const TensorSpan& /*x*/,
                           const TensorSpan& /*dy*/, float* /*partial*/) {}

  // Whether there are slices because no sum of dw may be cut into parts; then there may be one.
  virtual bool whole_batch() const { return false; }

  // Slices of dw whose sums are made to be judged alone, in a pass with Pass::bins; as WeightSlice.
  virtual int judged_slices(const Pass& /*pass*/) const { return 0; }
  virtual void JudgeSlice(int /*slice*/, const Chunk& /*batch*/, const TensorSpan& /*x*/,
                          const TensorSpan& /*dy*/) {}

  // After all chunks of a call: what was counted is complete. Not while workers run.
  virtual void FinishForward(const Pass& /*pass*/) {}
  virtual void FinishBackward(const Pass& /*pass*/) {}

  // Whether values of dw that are sums of few products are to be computed directly (winograd.h).
  virtual bool sparse_sums_are_inexact() const { return false; }

  // Values of one partial gradient, weights and bias together; its layout is the implementation's.
  virtual std::int64_t partial_values() const = 0;
  // The sum of `count` partial gradients, which lie one after the other and are added in that
  // order, in PyTorch's order. Overwrites them. db null: there is none. False: a sum is not finite.
  // Not while workers run.
  virtual bool Sum(float* partials, std::int64_t count, float* dw, float* db) const = 0;
  // From PyTorch's order to a partial gradient; adds, unless `first`.
  virtual void AddPlain(const float* dw, const float* db, bool first, float* partial) const = 0;
};

}  // namespace ada::backend::cpu
