// A tensor in a block-scaled format as files keep it: decoded values, codes and scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "study/convert/block_tensor.h"
#include "study/convert/tensor_list.h"

namespace ada::study {

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

}  // namespace ada::study
