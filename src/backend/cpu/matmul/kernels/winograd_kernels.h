// The kernels of Winograd's algorithm and what they are called with; see plan/winograd.h.
#pragma once
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

inline constexpr int kTaps = 9, kTapRows = 3;

inline constexpr int kEnoughTerms = 8;

// mark_nonzero: sets the bits of the values of some neighboring pixels that are not zero.
struct MarkNonzeroArgs {
  TensorSpan pixels;  // [count][channels]
  int count = 0, channels = 0;
  int position = 0;               // the first pixel's bit
  std::uint64_t* bits = nullptr;  // [words][room]
  int room = 0;                   // channels, rounded up to 16
};

// find_sparse_sums: for a block of 16 output channels and each input channel and tap, which of the
// outputs meet fewer than kEnoughTerms common bits in every single word.
struct FindSparseSumsArgs {
  const std::uint64_t* x[kTapRows] = {};  // [words + 1][in_room]
  const std::uint64_t* dy = nullptr;      // [words][out_room], from the block's first channel on
  int words = 0, in_channels = 0, in_room = 0, out_room = 0;
  std::uint16_t* few = nullptr;  // [in][tap]: a bit an output
};

inline constexpr int kWinogradPlaces = 16;  // of a 4 x 4 tile

// Adjacent tiles in one row of tiles of an image: `count` from tile column `column` on.
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

// transform_input: V of a batch's tiles. Zeros outside of the images, in channels after the last
// one, and in tiles after the batch's.
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
  const float* bias = nullptr;     // channels rounded up to 16, zeros after; null: none
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
  int outs = 16, ins = 0;  // that there are; zeros after
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
  void (*find_sparse_sums)(const FindSparseSumsArgs&);
  int room_multiple;  // what the room of a batch is a multiple of
};

}  // namespace ada::backend::cpu
