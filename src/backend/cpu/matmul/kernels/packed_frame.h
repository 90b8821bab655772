// Describes how the values that a convolution reads lie in memory; packed_convolution.h draws it.
#pragma once
#include <cstdint>

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

}  // namespace ada::backend::cpu
