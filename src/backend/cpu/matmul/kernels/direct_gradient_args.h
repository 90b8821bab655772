// What the direct kernels of weight gradients are called with; see plan/direct_weight_gradient.h.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/matmul/kernels/packed_convolution_args.h"

namespace ada::backend::cpu {

// A row of the output of some interleaved images, or a piece of one.
struct GradientRow {
  std::int64_t x = 0;  // bytes to the first packed pixel that its step 0 reads
  int row = 0;         // of the output
  int position = 0;    // the first, counted in the whole row
};

// direct_gradient: rows of the output of some images, or pieces of rows, of `positions` packed
// pixels.
struct DirectGradientArgs {
  const std::byte* x = nullptr;
  std::int64_t x_bytes = 64;  // of x from one position to the next
  const GradientRow* rows_of_y = nullptr;
  const std::int64_t* steps = nullptr;  // bytes from a row's x to what a step reads
  // Where each step finds x within the image; left and right count positions of whole rows.
  const MetOutputs* met = nullptr;
  const std::uint8_t* step_values = nullptr;  // channels of a step, 1 to 16
  int step_count = 0;
  const std::byte* dy = nullptr;  // [out_blocks][rows][positions]
  std::int64_t dy_plane_bytes = 0;
  int out_blocks = 0, rows = 0, positions = 0;
  int strip_rows = 1;  // rows whose x and dy stay in the first level of the cache
  bool first = true;
  float* partial = nullptr;  // [out_blocks][steps] tiles [in][out]
  float* bias = nullptr;     // db [out_blocks][16]; null: none
};

// tiles_to_rows: out[row * row_step + i] = tiles[16 * i + row], for i < values and row < rows.
struct TilesToRowsArgs {
  const float* tiles = nullptr;  // 16 x 16 each
  int rows = 16;                 // at most
  std::int64_t values = 0;
  float* out = nullptr;
  std::int64_t row_step = 0;
};

}  // namespace ada::backend::cpu
