// What the AMX and the direct kernels of weight gradients are called with; plan/partial_gradients.h
// draws how values lie.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "backend/cpu/matmul/kernels/packed_convolution_args.h"

namespace ada::backend::cpu {

// Tiles of dw, 16 x 16 values each, that lie together in a partial gradient: `outs` blocks of 16
// output channels times `columns` columns (blocks of 16 weights of one output). `tile`: the first
// one's number.
struct GradientGroup {
  int outs = 1, columns = 1, out = 0, column = 0, tile = 0;
  std::int64_t first_value() const { return std::int64_t{256} * tile; }
  std::int64_t values() const { return std::int64_t{256} * outs * columns; }
};

// Numbers of one layer. gathered: planes hold the values of a kernel's row, not channels. Parts: of
// bf16 that a value is the sum of.
struct WeightGradientShape {
  int h = 1, w = 1, c = 1;              // of x
  int out_h = 1, out_w = 1, out_c = 1;  // of dy
  int kernel_h = 1, stride_h = 1, padding_h = 0, dilation_h = 1;
  int stride_w = 1, padding_w = 0;
  int x_parts = 2, dy_parts = 2;
  bool bias = false, gathered = false;
};

// 16 channels of one pixel in stride_w.
struct GradientPlane {
  int first = 0, count = 0;  // the plane's pixels first .. first + count lie in the image
  int source = 0;            // where in an image's row `first` begins; gathered: of its padded row
  int lanes = 16;            // channels that exist
};

// 16 columns of dw: a plane under one tap.
struct GradientColumn {
  int row = 0, plane = 0;    // row: of the kernel
  int shift = 0;             // of the tap, in pixels of the plane
  int first = 0, last = 0;   // output pixels [first, last) whose tap lies in the image
  int channel = 0, tap = 0;  // of the first column of dw; the others follow in channel order
};

// For a block of 16 pairs of dy, from the first value of its row: where the pairs' pixels begin in
// bytes, and which of them exist.
struct GradientOffsets {
  std::ptrdiff_t first[16] = {}, second[16] = {};  // of a pair
  std::uint16_t has_first = 0, has_second = 0;
};

// How the images of one call lie in scratch memory. Rows of all sets of 2 * pairs images follow one
// another; dy is packed in strips of a few rows, two in turn, and x in a ring of rows.
struct WeightGradientPlan {
  int pairs = 1, sets = 1;
  int blocks = 1;                  // of 16 pairs, in a row of dy
  int pixels = 1;                  // of a plane, with the zeros around it
  int first_strip = 1, strip = 1;  // rows of dy, at first and at most
  int ring = 1;                    // rows of x
  std::size_t plane_bytes = 0, row_bytes = 0, strip_bytes = 0, line_bytes = 0;
  // Offsets in scratch memory.
  std::size_t x = 0, dy = 0, zeros = 0, lines = 0, offsets = 0, rows = 0, bytes = 0;
};

// Where the strip ends that begins at row `first` of `rows`. The first is short, since nothing
// hides its packing; each of the next has as many rows as all before it.
inline int StripEnd(const WeightGradientPlan& plan, int first, int rows) {
  const int most = first < plan.strip ? first : plan.strip;
  const int size = most > plan.first_strip ? most : plan.first_strip;
  return rows - first < size ? rows : first + size;
}

// One call; pointers are the plan's. first: partial is set, not added to.
struct WeightGradientArgs {
  const WeightGradientShape* shape = nullptr;
  const WeightGradientPlan* plan = nullptr;
  const GradientPlane* planes = nullptr;
  const GradientColumn* columns = nullptr;
  const GradientGroup* groups = nullptr;
  int plane_count = 0, group_count = 0, tiles = 0;  // tiles: of dw in a partial gradient
  TensorSpan x, dy;
  int images = 0;
  bool first = true;
  float* partial = nullptr;
  std::byte* scratch = nullptr;
};

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
  const ValidOutputs* valid = nullptr;
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
