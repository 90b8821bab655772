// The three products of one linear layer, y = x w^T, dx = dy w and dw = dy^T x, outside of any
// network: made by the CPU backend's op for linear layers, with the roundings that a graph gives
// such a layer.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/precision_config.h"
#include "io/tensor_names.h"
#include "number/blocks/block_quantizer.h"
#include "number/stats.h"
#include "scaling/rules/accumulator.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::run {

// A matrix, row by row, and the format that its values are stored in.
struct StoredMatrix {
  std::vector<float> values;
  std::int64_t rows = 0, columns = 0;
  NumberFormat format = kFp32;
  explicit operator bool() const { return rows > 0; }
};

// x [images, in], w [out, in], dy [images, out]; without a dy there is y alone.
struct LinearTensors {
  StoredMatrix x, w, dy;
};

struct LinearSetup {
  config::PrecisionConfig precision;
  std::string layer = "matmul";  // by which entries of precision.layers apply
  std::uint64_t seed = 1;
  // False: to nearest where a training rounds stochastically, as an evaluation does. True: by the
  // random words of a training's first step.
  bool stochastic = false;
  int threads = 0;  // 0: one for each core
};

// What one matmul took of a tensor, row by row as the tensor is.
struct OperandMatrix {
  std::int64_t rows = 0, columns = 0;
  bool across = true;        // the matmul sums along the columns of a row; else along rows
  bool laid_across = true;   // blocks and rows with scales are; differs from `across` as_forward
  bool rounds = false;       // false: it took what is stored
  AnyFormat format = kFp32;  // that it was rounded to; else that of the stored values
  std::optional<RoundingWords> words = {};  // of a stochastic rounding
  bool bf16 = false;                        // whether what was rounded is stored as bf16
  std::vector<float> before;  // what was rounded: the stored values, or their transform
  std::vector<float> values;  // what was multiplied, without the factor
  double factor = 1;          // by which sums of it were multiplied besides
  // How values of a plain format were scaled: all alike, or those of each row along which
  // `laid_across` says; empty: not at all. multiplies_back: as scaling::MultipliesBack.
  std::vector<scaling::RowScale> scales;
  bool by_row = false, multiplies_back = false;
  float power = 1;     // of two, by which exact_range enlarged the scale beside those of blocks
  TensorStats stats;   // of the rounding
  BlockCounts blocks;  // of a block-scaled format

  const scaling::RowScale& scale_at(std::size_t value) const {
    if (scales.size() == 1) return scales[0];
    const auto width = static_cast<std::size_t>(columns);
    return scales[laid_across ? value / width : value % width];
  }
};

// How the sums of one product were made.
struct MatmulSums {
  std::optional<scaling::Accumulator> rule;  // unset: in fp32
  scaling::AccumulatorCounts counts;         // of `rule`
};

struct LinearMatmuls {
  std::array<OperandMatrix, kOperands> operands;  // by Operand; those of dx and dw only with a dy
  LinearTensors stored;                           // after the rounding to their formats
  StoredMatrix y, dx, dw;
  std::array<MatmulSums, scaling::kLayerMatmuls> sums;  // by scaling::LayerMatmul
};

// x, w and dy are rounded to the formats of `precision` first, as a training stores them; those
// that it keeps in fp32 stay as they are. Shapes must fit. Throws DeviceError where memory does not
// suffice.
LinearMatmuls ComputeLinearMatmuls(const LinearSetup& setup, LinearTensors tensors);

}  // namespace ada::run
