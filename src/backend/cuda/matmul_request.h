// What is asked of a library of products, as plain data: a convolution's or linear layer's output,
// data gradient or weight gradient for a number of images. Libraries and their handles appear
// nowhere in this file.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/operands.h"
#include "number/tensor.h"

namespace ada::backend::cuda {

// Activations lie in NHWC, weights {out, kh, kw, in / groups} in that order. A linear layer's
// images are flat, {n, 1, 1, features}; those of a sequence have its positions.
struct MatmulGeometry {
  bool linear = false;
  Shape x, w, y;
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
  friend bool operator==(const MatmulGeometry&, const MatmulGeometry&) = default;
};
MatmulGeometry GeometryOf(const Conv2dSpec& spec);
// For the convolution from y to x whose data gradient the layer is.
MatmulGeometry GeometryOf(const ConvTranspose2dSpec& spec);
MatmulGeometry GeometryOf(const LinearSpec& spec);
// Whether all three products are of two matrices: of linear layers, and of convolutions that look
// at each pixel by itself.
bool IsMatrix(const MatmulGeometry& geometry);

enum class MatmulKind : std::uint8_t { kForward, kData, kWeights };

//              first   second   out
//   kForward     x        w       y
//   kData       dy        w      dx
//   kWeights     x       dy      dw
//
// Sums are fp32, of exact products, also where operands have 16 bits; fp32 operands are not rounded
// to TF32. With `scale` a sum is multiplied by an fp32 number before it is stored. With `codes` (of
// `first` and `second`; both or none) operands are codes of one byte, and units of a device may add
// up in fewer bits than fp32 has.
// Equal requests are the same product whatever layer asks: KeyOf names plans in memory and on disk.
struct MatmulRequest {
  MatmulKind kind = MatmulKind::kForward;
  MatmulGeometry geometry;  // x.n = y.n: images of this call
  Storage operands = Storage::kF32, out = Storage::kF32;
  bool scale = false;
  std::array<Fp8, 2> codes = {Fp8::kNone, Fp8::kNone};
  friend bool operator==(const MatmulRequest&, const MatmulRequest&) = default;
};

struct MatmulShapes {
  Shape first, second, out;
};
MatmulShapes ShapesOf(const MatmulRequest& request);

// Whether a plan multiplies its sums by a number, be it 1: cuDNN turns products of 16-bit operands
// into fp32 in no other way.
bool HasEpilogue(const MatmulRequest& request);

// In which storage two operands of these formats meet: 16 bits where both are fp16 or both bf16,
// else (emulated formats, mixtures) fp32.
Storage OperandsOf(const NumberFormat& first, const NumberFormat& second);

// fp8_e4m3 and fp8_e5m2, saturating or not; kNone of other formats.
Fp8 Fp8Of(const NumberFormat& format);
inline bool HasCodes(const MatmulRequest& r) { return r.codes[0] != Fp8::kNone; }
// Bytes of one value of operand 0 or 1.
std::size_t OperandBytes(const MatmulRequest& request);

// What an op leaves to a plan: nothing (sums are wanted), rounding to the storage of the operands,
// or that after a multiplication by `scale`.
enum class PlanOutput : std::uint8_t { kSums, kRounded, kScaledAndRounded };

// What to ask for, best first. Codes come with `scale`. For weight gradients of 16-bit operands
// whose input channels are no multiple of 4 or 8 (libraries have few plans for them) also the same
// with as many channels as that, x and dw alike: those that are added are to be zero in x, and
// nobody reads them in dw.
std::vector<MatmulRequest> RequestsFor(MatmulKind kind, const MatmulGeometry& geometry, int rows,
                                       Storage operands, PlanOutput output,
                                       const std::array<Fp8, 2>& codes = {});

// Four dimensions n, c, h, w and their strides in values, as cuDNN wants them.
struct TensorLayout {
  std::array<std::int64_t, 4> dims = {}, strides = {};
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};
TensorLayout LayoutOf(const Shape& shape);

// A request that IsMatrix, whose matrices lie by rows, as one product of matrices by columns,
// C = op(A) op(B), m x n over k.
struct ColumnMatmul {
  bool a_is_first = false;  // A: `first`, B: `second`; else the other way round
  bool transpose_a = false, transpose_b = false;
  std::int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0;
};
ColumnMatmul ColumnMatmulOf(const MatmulRequest& request);

// Matmuls of `batches` pairs of row-major matrices, one pair's memory after another, with fp32
// sums: [rows, terms] [terms, columns], where a transposed one is stored transposed.
struct BatchedRequest {
  std::int64_t rows = 0, columns = 0, terms = 0;
  bool transpose_first = false, transpose_second = false;
  Storage operands = Storage::kF32;
};

const char* NameOf(MatmulKind kind);  // "data gradient"
// One line that two requests share only where they are equal: names a plan on disk.
std::string KeyOf(const MatmulRequest& request);
// "data gradient of fp16 operands in fp32", "scaled data gradient of fp16 operands in fp16": for
// diagnostics.
std::string Describe(const MatmulRequest& request);
// The same, with the input channels where `asked` has others.
std::string Describe(const MatmulRequest& request, const MatmulRequest& asked);

}  // namespace ada::backend::cuda
