// The properties of a convolution or linear layer that determine along which values its matmuls sum
// (backend/operand_rows.h), and the storage type in which each matmul reads its two operands if it
// rounds one of them (precision.operands).
#pragma once
#include <array>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/matmul_request.h"
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

}  // namespace ada::backend::cuda
