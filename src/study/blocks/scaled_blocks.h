// A tensor in a block-scaled format as files keep it: decoded values, codes and scales.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "study/blocks/block_tensor.h"
#include "study/blocks/tensor_list.h"

namespace ada::study {

// Scales and amaxes are in the order of a file (block_tensor.h).
struct ScaledBlocks {
  std::vector<float> values;  // decoded
  std::vector<std::byte> codes;
  std::vector<float> scales;  // as they are stored
  std::vector<std::int64_t> scales_shape;
  std::vector<float> amaxes;  // of the tensor or of its rows; empty: the format asks for none
  std::vector<std::int64_t> amaxes_shape;
};

// words: unless null, elements are rounded stochastically.
ScaledBlocks QuantizeTensor(const BlockTensor& tensor, const BlockFormat& format,
                            const RoundingWords* words = nullptr);

// Adds NAME.scale (codes of e8m0 or fp8_e4m3 in U8, fp32 scales in F32) and NAME.amax.
void AddScales(const std::string& name, const BlockFormat& format, const ScaledBlocks& blocks,
               TensorList& to);

}  // namespace ada::study
