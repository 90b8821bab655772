// A convolution of some images by our own kernels: what the ways of computing it (directly,
// packed_convolution.h; by Winograd's algorithm, winograd.h) have in common.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// Made by KernelChunks, for y and for dx each. Run is const and may be called by all workers at a
// time, each with scratch memory of its own; packed weights belong to the caller.
class ChunkConvolution {
 public:
  struct Call {
    TensorSpan in, out;
    int images = 0;
    const std::byte* weights = nullptr;
    const float* bias = nullptr;       // channels rounded up to 16, zeros after; null: none
    float factor = 1;                  // out = round(sum * factor + bias); fp32: not rounded
    std::uint32_t* largest = nullptr;  // merged into, by reduction block of the output
    std::byte* scratch = nullptr;      // 64-byte aligned
  };
  virtual ~ChunkConvolution() = default;

  // Prepares calls for this many images. Must not be called while workers run.
  virtual void Prepare(int images) = 0;
  // The scratch memory that one worker needs for a call of at most this many images.
  virtual std::size_t scratch_bytes(int images) const = 0;

  virtual std::size_t weight_bytes() const = 0;
  // From PyTorch's order, panel by panel: each writes a part of the weights of its own. False: with
  // these weights zeros would not come out as zeros; Run is not to be called.
  virtual int panels() const = 0;
  virtual bool PackPanel(int panel, const float* plain, std::byte* weights) const = 0;

  virtual void Run(const Call& call) const = 0;
};

}  // namespace ada::backend::cpu
