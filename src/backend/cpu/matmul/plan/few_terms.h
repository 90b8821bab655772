// Values of a weight gradient that are sums of few products other than zero, of 3x3 convolutions.
// Winograd's algorithm (winograd.h) makes each value from sums over whole tiles. Where x and dy are
// sparse, their rounding errors may be larger than a value's own products, and a value whose
// products are all zero would come out as such an error. This class finds the values of fewer than
// kEnoughTerms products other than zero and sums them up one by one.
//
// It marks the pixels at which each channel of x and dy is not zero with a bit:
//
//   rows of the output     each takes `step` = width + 2 bits; its pixels are the first ones
//   dy   [word][channel]   bits of a slab of rows, 64 a word
//   x    [word][channel]   for each row of the kernel: of the rows of the padded input that it
//                          meets; the kernel's column k meets the bits k further on
//
// A slab of some hundred pixels says of nearly all weights of a dense layer that they have enough.
// The others are followed through the rest of the batch.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/kernels/few_terms_args.h"
#include "backend/cpu/matmul/matmul_geometry.h"

namespace ada::backend::cpu {

struct WinogradKernels;

// Owned by a MatmulOp whose dw comes from Winograd's algorithm; used once a backward pass: Begin,
// Take until it returns false or the batch ends, Store. Its bits are memory of its own, as large as
// a slab.
class FewTerms {
 public:
  FewTerms(const Context& context, const WinogradKernels& kernels, const MatmulGeometry& geometry);

  // Begins with a batch whose gradient came out as `dw`, in PyTorch's order. Values that are zero
  // there are left alone.
  void Begin(const float* dw);
  // Processes the images that follow those of earlier calls. Returns false if no more are needed:
  // no weight is left, or too many are.
  bool Take(TensorSpan x, TensorSpan dy, std::int64_t images);
  // Returns true if so many values have few terms that direct sums take less time.
  bool too_many() const { return too_many_; }
  // Writes the sums of all values that had few terms in the whole batch.
  void Store(float* dw) const;

 private:
  struct Sum {
    int in;
    std::uint8_t out, tap;  // out: within its block of 16
    std::uint8_t terms;
    double value;
  };
  // Some rows of the output of the images of one call, with the bits of what they read.
  struct Slab {
    TensorSpan x, dy;
    std::int64_t first = 0;  // the first row, counted over all images
    int rows = 0, words = 0;
  };
  void Mark(const Slab& slab);
  void FindFew(int block);
  void Follow(const Slab& slab, int block);
  void AddTerms(const Slab& slab, int block, int word, std::uint64_t common, Sum& sum) const;
  std::size_t Left() const;
  int in_room() const { return 16 * QuotientUp(geometry_.x.c, 16); }
  int out_room() const { return 16 * QuotientUp(geometry_.y.c, 16); }
  int step() const { return static_cast<int>(geometry_.y.w) + kTapRows - 1; }
  std::int64_t Place(int block, const Sum& sum) const;

  Context context_;
  const WinogradKernels& kernels_;
  MatmulGeometry geometry_;
  const float* dw_ = nullptr;
  bool first_ = true, too_many_ = false;
  int words_ = 0;
  std::vector<std::uint64_t> x_[kTapRows], dy_;
  std::vector<std::vector<Sum>> sums_;  // by block of 16 output channels
};

}  // namespace ada::backend::cpu
