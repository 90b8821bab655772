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
// directly (few_terms.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/winograd_kernels.h"
#include "backend/cpu/matmul/matmul_geometry.h"

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

}  // namespace ada::backend::cpu
