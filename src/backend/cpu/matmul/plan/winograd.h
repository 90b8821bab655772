// Convolutions of 3x3 with stride 1 by Winograd's minimal filtering F(2x2, 3x3), in fp32: a tile of
// 2 x 2 outputs takes 16 products a pair of channels where the direct sum takes 36.
//
//   y  = At (U . V) A      V = Bt d B, of the 4 x 4 inputs d that the tile reaches
//   dw = Gt (V . Z) G      U = G g Gt, of the 3 x 3 weights g;  Z = A dy At
//
// with . value by value, summed over input channels (y) or tiles (dw): 16 matrix products, one for
// each place of a 4 x 4 tile. (A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural
// Networks, 2016. Here the last row of Bt has the other sign, so that A holds no -1 alone.)
//
//   Bt =  1  0 -1  0     G =  1    0    0     At =  1  1  1  0
//         0  1  1  0         1/2  1/2  1/2          0  1 -1  1
//         0 -1  1  0         1/2 -1/2  1/2
//         0 -1  0  1          0    0    1
//
// Factors are sums of 4 inputs and of 9 weights, so a product is rounded where a direct one of
// 16-bit values is exact; but there are fewer of them to be added up, and the error of a result is
// that of fp32 sums (tests/backend/winograd_error_test.cpp). What is not finite spreads as NaN.
//
// A sum whose products are all zero has to come out as zero, or it would be counted as an
// underflow. An output takes no input beyond its own 3 x 3, so it is exactly zero where those are
// zeros. Where instead the weights of some taps are zero and those of others are not, the algorithm
// is not taken (transform_weights). Values of dw that are sums of few products are computed
// directly (SparseSums).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/winograd_kernels.h"
#include "backend/cpu/matmul/matmul_geometry.h"
#include "backend/cpu/matmul/plan/packed_convolution.h"
#include "backend/cpu/matmul/plan/partial_gradients.h"

namespace ada::backend::cpu {

// Whether y and dx of a layer are computed in this way; and its dw.
bool TakesWinograd(const MatmulGeometry& geometry);
bool TakesWinogradGradient(const MatmulGeometry& geometry);

// The batches of calls: images of `rows` x `columns` tiles.
// Tiles of all images are taken batch by batch: small enough for the cache, large enough that the
// weights are not read too often.
class WinogradBatches {
 public:
  // values: floats that a tile takes in a batch's memory.
  WinogradBatches(const WinogradKernels& kernels, std::int64_t h, std::int64_t w,
                  std::int64_t values);
  int room() const { return room_; }
  // Calls each(batch) for all tiles of this many images.
  template <class Each>
  void ForEach(int images, Each&& each) const {
    std::vector<WinogradRun> runs;
    WinogradBatch batch;
    batch.room = room_;
    const auto flush = [&] {
      batch.runs = runs.data(), batch.run_count = static_cast<int>(runs.size());
      each(static_cast<const WinogradBatch&>(batch));
      runs.clear(), batch.tiles = 0;
    };
    for (int image = 0; image < images; ++image)
      for (int row = 0; row < rows_; ++row)
        for (int column = 0; column < columns_; column += run_) {
          const int count = run_ < columns_ - column ? run_ : columns_ - column;
          if (batch.tiles + count > room_) flush();
          runs.push_back({image, row, column, count});
          batch.tiles += count;
        }
    if (batch.tiles > 0) flush();
  }

 private:
  int rows_, columns_;
  int run_, room_;  // tiles of a run at most; of a batch
};

// Forward products and data gradients of 3x3 convolutions by Winograd's algorithm.
// Nothing depends on the number of images in a call, so that there is nothing to prepare.
class WinogradConvolution final : public ChunkConvolution {
 public:
  // y from x, and dx from dy. block: images in a reduction block of the output. TakesWinograd
  // holds.
  static WinogradConvolution Forward(const WinogradKernels& kernels, const MatmulGeometry& geometry,
                                     int block);
  static WinogradConvolution DataGradient(const WinogradKernels& kernels,
                                          const MatmulGeometry& geometry, int block);

  void Prepare(int) override {}
  std::size_t scratch_bytes(int images) const override;
  std::size_t weight_bytes() const override;
  int panels() const override { return QuotientUp(out_.c, 16); }
  bool PackPanel(int panel, const float* plain, std::byte* weights) const override;
  void Run(const Call& call) const override;

 private:
  WinogradConvolution(const WinogradKernels& kernels, const Shape& in, const Shape& out,
                      std::array<int, 2> padding, bool data_gradient, int block);
  int in_blocks() const { return QuotientUp(in_.c, 16); }
  std::int64_t v_values() const {
    return kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), in_blocks());
  }
  std::int64_t panel_values() const { return std::int64_t{kWinogradPlaces} * 256 * in_blocks(); }

  const WinogradKernels& kernels_;
  Shape in_, out_;
  std::array<int, 2> padding_;
  bool data_gradient_;
  int block_;
  WinogradBatches batches_;
};

// Weight gradients of 3x3 convolutions by Winograd's algorithm. A partial gradient
// holds the sums of V . Z; what they are of dw is worked out once, at the end.
// Partial gradients are 16 / 9 as large as dw, and added up before they are transformed, which is
// linear.
class WinogradGradient final : public PartialGradients {
 public:
  WinogradGradient(const WinogradKernels& kernels, const MatmulGeometry& geometry);

  std::size_t scratch_bytes(int images) const override;
  std::int64_t partial_values() const override;
  void Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
           std::byte* scratch) const override;
  const std::vector<GradientGroup>& groups() const override { return groups_; }
  void ToPlain(const GradientGroup& group, const float* partial, float* dw) const override;
  void BiasToPlain(const float* partial, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  int in_blocks() const { return QuotientUp(geometry_.x.c, 16); }
  int out_blocks() const { return QuotientUp(geometry_.y.c, 16); }
  std::int64_t v_values() const {
    return kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), in_blocks());
  }
  // The sizes for 16 output channels, and for all, without db.
  std::int64_t block_values() const { return std::int64_t{kWinogradPlaces} * 256 * in_blocks(); }
  std::int64_t sum_values() const { return out_blocks() * block_values(); }

  const WinogradKernels& kernels_;
  MatmulGeometry geometry_;
  WinogradBatches batches_;
  std::vector<GradientGroup> groups_;  // one a block of output channels
};

// Values of a weight gradient that are sums of few products other than zero, of 3x3 convolutions.
// Winograd's algorithm makes each value from sums over whole tiles. Where x and dy are
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
//
// Owned by a MatmulOp whose dw comes from Winograd's algorithm; used once a backward pass: Begin,
// Take until it returns false or the batch ends, Store. Its bits are memory of its own, as large as
// a slab.
class SparseSums {
 public:
  SparseSums(const Context& context, const WinogradKernels& kernels,
             const MatmulGeometry& geometry);

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
