// How the values that a convolution reads lie in memory: tile_convolution.h draws it.
#pragma once
#include <cstdint>

namespace ada::backend::cpu {

// A frame of an image with zeros around it, in records, one for each pixel and block of channels.
// Counts are in records. Where there are few channels, kernels of floats and pairs may read runs
// instead: a row of the frame holds the values of its pixels without gaps, so that what neighbours
// of the output read overlaps:
//
//   row    r g b r g b r g b r g b r g b ..     3 channels, a kernel 3 wide, stride 1
//          |  position 0  |
//                |  position 1  |
struct TileFrame {
  int together = 1;    // images side by side: 1, 2, 4, 8 or 16; in runs 1
  int remainders = 1;  // frames by column, modulo the stride; in runs 1
  int rows = 0, columns = 0;
  int top = 0, left = 0;  // of zeros above and beside the image
  int window = 1;         // columns of the input in one record, or that a step in runs reads
  int window_step = 1;    // columns between the windows of neighbours
  int block = 32;         // channels of a row of a tile: 16 (both parts in a row) or 32
  int blocks = 1;         // of channels (of a window)
  int parts = 1;
  int run_step = 0;     // of runs: values between neighbours; 0: records
  int run_values = 0;   // of runs: in a row of the frame, whole lines of 64 bytes
  int value_bytes = 4;  // of runs

  bool runs() const { return run_step > 0; }
  // Between the rows of a tile.
  int row_bytes() const { return runs() ? run_step * value_bytes : block == 16 ? 64 : 64 * parts; }
  // Of a row of the frame, of all images together.
  std::int64_t line_bytes() const {
    return runs() ? std::int64_t{run_values} * value_bytes
                  : std::int64_t{columns} * together * row_bytes();
  }
  // Of `together` images and one block of channels; of runs: of all.
  std::int64_t group_bytes() const { return line_bytes() * rows * remainders; }
};

}  // namespace ada::backend::cpu
