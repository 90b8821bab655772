// A file's tensor on its way to a block-scaled format: its values, the place of its blocks, and the
// scales as a tensor.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "number/blocks/block_quantizer.h"

namespace ada::study {

// Values are in the file's order; `layout` says where rows and blocks lie among them, as
// QuantizeBlocks (number/blocks/) wants it. convert and inspect make one a tensor and drop it.
struct BlockTensor {
  std::vector<float> values;
  BlockLayout layout;
  float amax = 0;        // of the values
  bool bf16 = false;     // the file has them as BF16
  std::size_t axis = 0;  // along which blocks run
  std::vector<std::int64_t> shape;
};

// Reads a float tensor, times `factor`: F64 is multiplied in double and rounded to fp32. `axis`:
// from the front, or with a minus from the end; unset: the last. ConfigError naming the tensor
// where it has no such axis.
BlockTensor ReadBlockTensor(const SafetensorsFile& file, const TensorEntry& entry,
                            const BlockFormat& format, std::optional<int> axis, float factor);

// The shape of the tensor of scales: that of the values, with the length of the axis replaced by
// the number of blocks along it. For square blocks it is [rows of tiles, blocks, the axes after];
// if they run along axis 0, [blocks, rows of tiles, the axes after axis 1].
std::vector<std::int64_t> ShapeOfScales(const BlockTensor& tensor, const BlockFormat& format);

// That of the largest magnitudes of rows: 1 in the place of the axis. A scalar has no axis.
std::vector<std::int64_t> ShapeOfRows(const BlockTensor& tensor);
// These magnitudes, of the tensor's values; not of square blocks.
std::vector<float> OrderedRowAmaxes(const BlockTensor& tensor);

// Puts scales in the order of that tensor; they come as QuantizeBlocks gives them.
std::vector<float> OrderedScales(const BlockTensor& tensor, const BlockFormat& format,
                                 const std::vector<float>& scales);

}  // namespace ada::study
