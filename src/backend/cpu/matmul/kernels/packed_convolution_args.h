// What the kernels of convolutions over packed input are called with; plan/packed_convolution.h
// draws how it lies.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/packed_frame.h"

namespace ada::backend::cpu {

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
struct MetOutputs {
  int top = 0, bottom = 0, left = 0, right = 0;
};

}  // namespace ada::backend::cpu
