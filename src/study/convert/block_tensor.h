// A file's tensor on its way to a block-scaled format: its values, the place of its blocks; and
// what a file keeps of it: decoded values, codes and scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "number/blocks/block_quantizer.h"
#include "study/convert/tensor_list.h"

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

// --- As files keep it ---

// Scales and amaxes are in the order of a file (block_tensor.h), the rest in that of the values.
struct ScaledBlocks {
  std::vector<std::int64_t> shape;
  std::size_t axis = 0;       // along which blocks run
  std::vector<float> values;  // decoded
  std::vector<std::byte> codes;
  std::vector<std::byte> doubled;  // of HiFloat4 (QuantizedBlocks); else empty
  std::vector<float> scales;       // as they are stored
  std::vector<std::int64_t> scales_shape;
  std::vector<float> amaxes;  // of the tensor or of its rows; empty: the format asks for none
  std::vector<std::int64_t> amaxes_shape;
};

// words: unless null, elements are rounded stochastically.
ScaledBlocks QuantizeTensor(const BlockTensor& tensor, const BlockFormat& format,
                            const RoundingWords* words = nullptr);

// Adds NAME.scale (codes in U8, fp32 scales in F32), NAME.amax, of HiFloat4 NAME.e8 and NAME.e16
// (U8; the axis an eighth and a quarter as long), and NAME.codes in `shape`, one code a byte: whole
// numbers in I8, others in U8 with the sign on top.
void AddParts(const std::string& name, const BlockFormat& format, const ScaledBlocks& blocks,
              const std::vector<std::int64_t>& shape, TensorList& to);

// Throws ConfigError where the glob of --tensors matches no tensor of a file that has some: that is
// a slip. Called by inspect and convert before they read any values.
void CheckTensorsGlob(const SafetensorsFile& file, const std::string& glob);

}  // namespace ada::study
