// What the kernels of convolutions over packed input are called with; plan/packed_convolution.h
// draws how it lies.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"

namespace ada::backend::cpu {

// A frame of an image with zeros around it: one packed pixel for each pixel and block of channels.
// Counts are in packed pixels. Where there are few channels the fp32 and bf16-dot kernels may read
// dense rows instead: a row of the frame holds the values of its pixels without gaps, so that what
// neighbors of the output read overlaps:
//
//   row    r g b r g b r g b r g b r g b ..     3 channels, a kernel 3 wide, stride 1
//          |  position 0  |
//                |  position 1  |
struct PackedFrame {
  int interleaved = 1;  // interleaved images: 1, 2, 4, 8 or 16; with dense rows 1
  int phases = 1;       // stride phases: frames by column modulo the stride; with dense rows 1
  int rows = 0, columns = 0;
  int top = 0, left = 0;  // of zeros above and left of the image
  int window = 1;  // columns of the input in one packed pixel, or that a step reads of a dense row
  int window_step = 1;  // columns between the windows of neighbors
  int block = 32;       // channels of a row of a row block: 16 (both parts in a row) or 32
  int blocks = 1;       // of channels (of a window)
  int parts = 1;
  int dense_step = 0;    // dense rows: values between neighbors; 0: packed pixels
  int dense_values = 0;  // dense rows: in a row of the frame, whole lines of 64 bytes
  int value_bytes = 4;   // dense rows

  bool dense_rows() const { return dense_step > 0; }
  // Bytes between the rows of a row block.
  int row_bytes() const {
    return dense_rows() ? dense_step * value_bytes : block == 16 ? 64 : 64 * parts;
  }
  // Bytes of a row of the frame, of all interleaved images.
  std::int64_t line_bytes() const {
    return dense_rows() ? std::int64_t{dense_values} * value_bytes
                        : std::int64_t{columns} * interleaved * row_bytes();
  }
  // Bytes of the interleaved images and one block of channels; with dense rows of all channels.
  std::int64_t group_bytes() const { return line_bytes() * rows * phases; }
};

// pack_input packs a frame of `images` images. Missing ones are zeros.
struct PackInputArgs {
  PackedFrame frame;
  TensorSpan x;
  int images = 0, h = 0, w = 0, c = 0;
  int pixel = 0;             // values from one pixel to the next: c, or the channels of all groups
  bool image_pairs = false;  // bf16 dot: a pixel holds two images' channels, not twice as many
  std::byte* packed = nullptr;   // [blocks][groups of images][phases][rows][columns][interleaved]
  std::int64_t plane_bytes = 0;  // of one block of channels; with dense rows of all
};

// pack_weights packs one block of weights, from values at plain[column * column_step + k * k_step].
struct PackWeightsArgs {
  const float* plain = nullptr;
  std::int64_t column_step = 0, k_step = 0;
  int columns = 16, k = 32;  // that there are; zeros after
  bool twice = false;        // k <= 16: the upper half repeats the lower one
  int parts = 1;
  std::byte* tiles = nullptr;  // 1 KB a part
};

// Lists of the steps that find anything but the zeros around the image: for rows 0 to 7 of a row
// block, rows 8 to 15, and all of them.
struct RowBlockSteps {
  std::uint16_t of_half[2] = {0, 0}, of_all = 0;
};

// 16 positions of the output.
struct RowBlock {
  std::int64_t packed_pixel = 0;  // bytes, of row 0
  std::int64_t out = 0;           // values, of row 0
  std::int32_t block = 0;         // reduction block of row 0
  std::uint32_t valid = 0;        // one bit a row
  RowBlockSteps steps = {};       // not for bf16 split
};

// convolve computes all row blocks of one call, for every output channel.
struct PackedConvolutionArgs {
  const std::byte* packed = nullptr;
  int row_bytes = 64, x_parts = 1, w_parts = 1;
  bool both_parts_in_row = false;
  const std::int64_t* steps = nullptr;  // bytes from a row block's first pixel to what a step reads
  int step_count = 0;                   // taps times blocks of channels
  const std::uint8_t* step_values = nullptr;  // channels of a step; not for bf16 split
  const std::int32_t* lists = nullptr;        // of steps: list l are list_begins[l] .. [l + 1]
  const std::int32_t* list_begins = nullptr;  // not for bf16 split
  const std::byte* weights = nullptr;         // tiles: [out channels / 16][steps][w_parts]
  const RowBlock* tiles = nullptr;
  int tile_count = 0;                         // a multiple of 4
  const std::int64_t* row_offsets = nullptr;  // values, from row 0 to row i
  const std::uint8_t* row_blocks = nullptr;   // reduction blocks, likewise; not for bf16 split
  int channels = 0;                           // of the output
  float* sums = nullptr;                      // [tile_count][16][16], where weights exceed a panel
  const float* bias = nullptr;                // channels rounded up to 16, zeros after; null: none
  float factor = 1;                           // out = round(sum * factor + bias)
  TensorSpan out;                             // fp32: stored as they are
  std::uint32_t* largest = nullptr;           // by reduction block: bits of the largest magnitude
};

// Outputs that find what they read within the image: rows top .. bottom, columns left .. right.
struct ValidOutputs {
  int top = 0, bottom = 0, left = 0, right = 0;
};

}  // namespace ada::backend::cpu
