// See matmul_request.h.
#include "backend/cuda/matmul_request.h"

namespace ada::backend::cuda {
namespace {

const char* NameOf(Storage storage) {
  return storage == Storage::kF32 ? "fp32" : storage == Storage::kF16 ? "fp16" : "bf16";
}
const char* NameOf(Fp8 format) { return format == Fp8::kE4M3 ? "fp8_e4m3" : "fp8_e5m2"; }
// "fp16", or "fp8_e4m3 and fp8_e5m2".
std::string OperandNames(const MatmulRequest& r) {
  if (!HasCodes(r)) return NameOf(r.operands);
  const std::string first = NameOf(r.codes[0]), second = NameOf(r.codes[1]);
  return first == second ? first : first + " and " + second;
}
// Rounding to the storage is rounding to the format.
// Whether a format saturates does not matter for values that are stored already.
bool IsStored(const NumberFormat& format, const NumberFormat& stored) {
  NumberFormat plain = format;
  plain.saturate = false;
  return plain == stored;
}

std::string Text(const Shape& s) {
  std::string text;
  for (const std::int64_t size : {s.n, s.h, s.w, s.c})
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text;
}
std::string Text(const std::array<int, 2>& pair) {
  return std::to_string(pair[0]) + "x" + std::to_string(pair[1]);
}

template <class Spec>
MatmulGeometry WindowGeometry(const Spec& spec, const Shape& x, const Shape& y) {
  MatmulGeometry g;
  g.x = x, g.w = spec.w.shape, g.y = y;
  g.stride = spec.stride, g.padding = spec.padding, g.dilation = spec.dilation;
  g.groups = spec.groups;
  return g;
}

}  // namespace

const char* NameOf(MatmulKind kind) {
  return kind == MatmulKind::kForward ? "output"
         : kind == MatmulKind::kData  ? "data gradient"
                                      : "weight gradient";
}

MatmulGeometry GeometryOf(const Conv2dSpec& spec) {
  return WindowGeometry(spec, spec.x.shape, spec.y.shape);
}

MatmulGeometry GeometryOf(const ConvTranspose2dSpec& spec) {
  return WindowGeometry(spec, spec.y.shape, spec.x.shape);
}

MatmulGeometry GeometryOf(const LinearSpec& spec) {
  MatmulGeometry g;
  g.linear = true;
  const Shape &w = spec.w.shape, &y = spec.y.shape;
  g.x = {y.n, y.h, y.w, w.per_image()};
  g.w = {w.n, 1, 1, w.per_image()};
  g.y = y;
  return g;
}

bool IsMatrix(const MatmulGeometry& g) {
  const std::array<int, 2> one = {1, 1}, none = {0, 0};
  return g.linear ||
         (g.w.h == 1 && g.w.w == 1 && g.stride == one && g.padding == none && g.groups == 1);
}

// In the order of the table in matmul_request.h.
MatmulShapes ShapesOf(const MatmulRequest& r) {
  const MatmulGeometry& g = r.geometry;
  if (r.kind == MatmulKind::kForward) return {g.x, g.w, g.y};
  if (r.kind == MatmulKind::kData) return {g.y, g.w, g.x};
  return {g.x, g.y, g.w};
}

bool HasEpilogue(const MatmulRequest& r) {
  return r.scale || (r.operands != Storage::kF32 && r.out == Storage::kF32);
}

Storage OperandsOf(const NumberFormat& first, const NumberFormat& second) {
  if (IsStored(first, kFp16) && IsStored(second, kFp16)) return Storage::kF16;
  if (IsStored(first, kBf16) && IsStored(second, kBf16)) return Storage::kBF16;
  return Storage::kF32;
}

Fp8 Fp8Of(const NumberFormat& format) {
  return IsStored(format, kFp8E4M3)   ? Fp8::kE4M3
         : IsStored(format, kFp8E5M2) ? Fp8::kE5M2
                                      : Fp8::kNone;
}

std::size_t OperandBytes(const MatmulRequest& r) { return HasCodes(r) ? 1 : BytesOf(r.operands); }

namespace {

void AddPadded(const MatmulRequest& request, std::vector<MatmulRequest>* requests) {
  for (const std::int64_t multiple : {4, 8}) {
    MatmulRequest padded = request;
    const std::int64_t channels = (request.geometry.x.c + multiple - 1) / multiple * multiple;
    padded.geometry.x.c = padded.geometry.w.c = channels;
    if (channels > requests->back().geometry.x.c) requests->push_back(padded);
  }
}

}  // namespace

// From what costs least to what always works: codes, rounding by the plan, fp32 sums of 16-bit
// operands, the same with padded channels, fp32 operands.
std::vector<MatmulRequest> RequestsFor(MatmulKind kind, const MatmulGeometry& geometry, int rows,
                                       Storage operands, PlanOutput output,
                                       const std::array<Fp8, 2>& codes) {
  MatmulRequest request{kind, geometry, operands, Storage::kF32};
  request.geometry.x.n = request.geometry.y.n = rows;
  std::vector<MatmulRequest> requests;
  if (codes[0] != Fp8::kNone) {
    MatmulRequest coded = request;
    coded.codes = codes, coded.scale = true;
    requests.push_back(coded);
  }
  if (output != PlanOutput::kSums && operands != Storage::kF32) {
    request.out = operands, request.scale = output == PlanOutput::kScaledAndRounded;
    requests.push_back(request);
  }
  request.out = Storage::kF32, request.scale = false;
  requests.push_back(request);
  if (operands == Storage::kF32) return requests;
  if (kind == MatmulKind::kWeights && !IsMatrix(geometry) && geometry.groups == 1)
    AddPadded(request, &requests);
  request.operands = Storage::kF32;
  requests.push_back(request);
  return requests;
}

// Strides in values: neighboring channels are 1 apart.
TensorLayout LayoutOf(const Shape& s) {
  return {{s.n, s.c, s.h, s.w}, {s.per_image(), 1, s.w * s.c, s.c}};
}

// Read by columns, a row-major [rows, columns] matrix is its own transpose, columns x rows.
ColumnMatmul ColumnMatmulOf(const MatmulRequest& request) {
  const Shape& x = request.geometry.x;
  const std::int64_t rows = x.n * x.h * x.w, in = x.c, out = request.geometry.y.c;
  ColumnMatmul p;
  switch (request.kind) {
    case MatmulKind::kForward:  // y' = w x': [out, in] [in, rows]
      p = {false, true, false, out, rows, in, in, in, out};
      break;
    case MatmulKind::kData:  // dx' = w' dy': [in, out] [out, rows]
      p = {false, false, false, in, rows, out, in, out, in};
      break;
    case MatmulKind::kWeights:  // dw' = x' dy: [in, rows] [rows, out]
      p = {true, false, true, in, out, rows, in, out, in};
      break;
  }
  return p;
}

std::string KeyOf(const MatmulRequest& r) {
  const MatmulGeometry& g = r.geometry;
  std::string key = std::string(NameOf(r.kind)) + (g.linear ? ", linear" : ", convolution");
  key += ", x " + Text(g.x) + ", w " + Text(g.w) + ", y " + Text(g.y);
  key += ", stride " + Text(g.stride) + ", padding " + Text(g.padding);
  key += ", dilation " + Text(g.dilation) + ", groups " + std::to_string(g.groups);
  key += ", " + OperandNames(r) + " to " + NameOf(r.out);
  return key + (r.scale ? ", scaled" : "");
}

std::string Describe(const MatmulRequest& r, const MatmulRequest& asked) {
  const std::int64_t channels = r.geometry.x.c;
  return Describe(r) + (channels == asked.geometry.x.c
                            ? ""
                            : " with " + std::to_string(channels) + " input channels");
}

std::string Describe(const MatmulRequest& r) {
  return (r.scale && !HasCodes(r) ? "scaled " : "") + std::string(NameOf(r.kind)) + " of " +
         OperandNames(r) + " operands in " + NameOf(r.out);
}

}  // namespace ada::backend::cuda
