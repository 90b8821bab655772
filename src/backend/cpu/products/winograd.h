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
// is not taken (transform_weights). Values of dw that few products make are summed up directly
// (few_terms.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/products/product_geometry.h"

namespace ada::backend::cpu {

struct MarkNonzeroArgs;   // few_terms.h
struct FindFewTermsArgs;  // few_terms.h

inline constexpr int kWinogradPlaces = 16;  // of a 4 x 4 tile

// Tiles side by side in one row of tiles of an image: `count` from tile column `column` on.
struct WinogradRun {
  int image, row, column, count;
};

// Batches of tiles whose transforms stay in a core's own cache.
//
//   V   [place][blocks of 16 channels][tiles][16]; places are an odd number of lines apart, since
//       16 stores that are a power of two apart would fall into one set of the cache
struct WinogradBatch {
  const WinogradRun* runs = nullptr;
  int run_count = 0;
  int tiles = 0;  // of all runs
  int room = 0;   // tiles that a block of channels has room for
  static std::int64_t PlaceValues(int room, int blocks) {
    return (std::int64_t{room} * blocks + 1) * 16;
  }
};

// An image tensor from its first image on.
struct WinogradImages {
  TensorSpan values;
  int h = 0, w = 0, c = 0;
  std::int64_t image_values() const { return std::int64_t{h} * w * c; }
};

// transform_input: V of a batch's tiles. Zeros outside of the images, in channels behind the last
// one, and in tiles behind the batch's.
struct WinogradInputArgs {
  WinogradImages x;
  int top = 0, left = 0;  // of padding
  WinogradBatch batch;
  float* v = nullptr;
};

// convolve: y of a batch's tiles.
struct WinogradConvolveArgs {
  WinogradBatch batch;
  const float* v = nullptr;
  int in_channels = 0;
  const float* weights = nullptr;  // U: [blocks of 16 out][place][in][16], in: rounded up to 16
  float* sums = nullptr;           // [2][place][room][16], places apart as those of V
  const float* bias = nullptr;     // channels rounded up to 16, zeros behind; null: none
  float factor = 1;                // y = round(sum * factor + bias)
  WinogradImages y;
  int block = 1;                     // images of a reduction block of y
  std::uint32_t* largest = nullptr;  // by reduction block: bits of the largest magnitude
};

// gradient: partial (+)= the products V . Z of a batch's tiles.
struct WinogradGradientArgs {
  WinogradBatch batch;
  const float* v = nullptr;
  int in_channels = 0;
  WinogradImages dy;
  float* z = nullptr;        // as V, of output channels
  bool first = true;         // partial is set
  float* partial = nullptr;  // [blocks of 16 out][place][in][16], as U
  float* bias = nullptr;     // db [blocks of 16 out][16]; null: none
};

// transform_weights: U of 16 output channels. The weight of output o, input i and tap t lies at
// plain[o * out_step + i * in_step + t]; of a data gradient the taps are turned round. Returns
// false where some of the nine weights of an output and an input are zero and others are not.
struct WinogradWeightsArgs {
  const float* plain = nullptr;
  std::int64_t out_step = 0, in_step = 0;
  int outs = 16, ins = 0;  // that there are; zeros behind
  bool turned = false;
  float* u = nullptr;  // [place][in][16]
};

// plain_gradient: Gt . G of what `partial` holds of 16 output channels, to PyTorch's order.
struct WinogradPlainArgs {
  const float* partial = nullptr;  // [place][in][16]
  int outs = 16, ins = 0;
  float* dw = nullptr;  // [outs][ins][3][3]
};

struct WinogradKernels {
  void (*transform_input)(const WinogradInputArgs&);
  void (*convolve)(const WinogradConvolveArgs&);
  void (*gradient)(const WinogradGradientArgs&);
  bool (*transform_weights)(const WinogradWeightsArgs&);
  void (*plain_gradient)(const WinogradPlainArgs&);
  void (*mark_nonzero)(const MarkNonzeroArgs&);
  void (*find_few_terms)(const FindFewTermsArgs&);
  int room_multiple;  // what the room of a batch is a multiple of
};

// Whether y and dx of a layer are computed in this way; and its dw.
bool TakesWinograd(const ProductGeometry& geometry);
bool TakesWinogradGradient(const ProductGeometry& geometry);

// The batches of calls: images of `rows` x `columns` tiles.
class WinogradBatches {
 public:
  // values: floats that a tile takes in a batch's memory.
  WinogradBatches(const WinogradKernels& kernels, std::int64_t h, std::int64_t w,
                  std::int64_t values);
  int room() const { return room_; }
  // each(batch) for all tiles of so many images.
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
