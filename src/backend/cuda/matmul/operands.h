// How an operand of a matmul is rounded once more: along which values the matmuls of a layer sum
// (backend/operand_rows.h), in which type each reads its operands, and the launches and the memory
// that rounding to blocks takes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/block_rounding.h"
#include "backend/cuda/matmul_request.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/operand_rows.h"
#include "backend/specs.h"

namespace ada::backend::cuda {

// Made of the spec once; operand_rows.h says which values share a block, a row or a transform.
struct OperandPlaces {
  bool linear = false;      // all values of an image are one row
  bool transposed = false;  // w is [in, out / groups, ...]
  std::int64_t groups = 1;
  bool pointwise = false;  // each pixel is a row by itself
};

// A linear layer over a sequence maps each of its positions, as a convolution of 1x1 does.
template <class Spec>
OperandPlaces PlacesOf(const Spec& spec) {
  if constexpr (std::is_same_v<Spec, LinearSpec>) {
    const bool is_sequence = spec.y.shape.h * spec.y.shape.w > 1;
    return {!is_sequence, false, 1, is_sequence};
  } else {
    const bool pointwise = spec.w.shape.h * spec.w.shape.w == 1 &&
                           spec.stride == std::array{1, 1} && spec.padding == std::array{0, 0};
    return {false, std::is_same_v<Spec, ConvTranspose2dSpec>, spec.groups, pointwise};
  }
}

// The two operands of a product of the layer.
constexpr std::array<Operand, 2> BothOperandsOf(MatmulKind kind) {
  using enum Operand;
  return kind == MatmulKind::kForward ? std::array{kForwardX, kForwardW}
         : kind == MatmulKind::kData  ? std::array{kDxDy, kDxW}
                                      : std::array{kDwX, kDwDy};
}
bool Rounds(const MatmulSpec& spec, MatmulKind kind);
// The storage that both operands of a product that Rounds are given in, or one of them and the
// other as it is stored: bf16 or fp16 where that holds all values of both, else fp32.
Storage CarrierOf(const MatmulSpec& spec, MatmulKind kind);

// Throws ConfigError for an operand whose rows have scales, which only the CPU backend has.
void RefuseScales(const OperandRounding& operand);
// The same of a transform other than that of 16 rows for dw.
void RefuseTransform(const OperandRounding& operand, Operand which);

// Used for operands of the batch and of weights. Tiles are fixed by the layer but for the number of
// rows, which follows the pass.
class BlockOperand {
 public:
  // most: rows at the most. bf16: values are given as bf16. before: measures the values before
  // their rounding, as those of a tensor in fp32.
  BlockOperand(const Context& context, const OperandRounding& operand, const OperandRows& rows,
               std::int64_t most, bool bf16, const RoundingStats& before);
  // Rows hold pixels of so many channels, which are numbered in PyTorch's order.
  void TakeAsPyTorch(std::int64_t channels);

  // Bytes of memory that is free again after the launches.
  std::size_t work_bytes() const;
  bool asks_amax() const { return format_.tensor_scale && !format_.row_scaled; }
  // out = the decoded values of `rows` rows. first: the number of the first value, for random
  // words. amax: bits of the largest magnitude, where the format asks; null: of these values.
  void Round(const Pass& pass, const TensorSpan& in, std::int64_t rows, std::int64_t first,
             const std::uint32_t* amax, const TensorSpan& out, std::byte* work) const;

 private:
  // Parts of the memory, in bytes.
  struct Work {
    std::size_t largest, rows, errors, parts;
  };
  BlockTiles TilesOf(std::int64_t rows) const;
  Work WorkOf(const BlockTiles& tiles) const;
  std::int64_t RangesOf(const BlockTiles& tiles) const;
  void FindLargest(const BlockRounding& how, std::uint32_t* amax) const;
  void ChooseScales(const BlockRounding& how, float* errors) const;
  void Count(const BlockRounding& how, std::byte* parts) const;

  Stream& stream_;
  const PassValues* pass_;
  OperandRounding operand_;
  BlockFormat format_;
  OperandRows rows_;
  BlockTiles tiles_;  // but for the number of rows
  std::int64_t most_;
  BlockGrid grid_;
  RoundingStats before_;
};

}  // namespace ada::backend::cuda
