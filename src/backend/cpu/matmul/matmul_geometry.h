// What a convolution or linear map computes, in sizes, and which of a kernel's taps meet what.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "number/tensor.h"

namespace ada::backend::cpu {

// Made from the spec once. Shapes are [n, h, w, c]; a linear layer's y is [n, 1, 1, features].
struct MatmulGeometry {
  bool linear = false;
  Shape x, y;  // of the whole tensors; n is ignored
  Shape w;     // {out, kh, kw, in / groups}; linear: {out, h, w, c}
  // A convolution the other way round, from y to x; w is {in, kh, kw, out / groups}.
  bool transposed = false;
  std::array<int, 2> stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
  bool bias = false;
  bool training = true;       // backward primitives are made
  bool data_gradient = true;  // the one for dx too
};

// As many channels out as in, in groups of 1 (depthwise), 2 or 4.
inline bool IsNarrow(const MatmulGeometry& g) {
  return g.groups > 1 && g.x.c == g.y.c && (g.w.c == 1 || g.w.c == 2 || g.w.c == 4);
}

// a / b, rounded up; a >= 0.
inline int QuotientUp(std::int64_t a, int b) { return static_cast<int>((a + b - 1) / b); }

// One row or column k of a kernel that contributes to outputs of a data gradient, and the offset of
// the row or column of dy that it is multiplied with.
struct Reach {
  int k, at;
};
// dx[y] takes w[k] * dy[j] where j * stride = y + padding - k * dilation. For the places y = r + i
// * stride of one phase r: j = i + (r + padding - k * dilation) / stride, where that is whole.
// axis: 0 rows, 1 columns.
inline std::vector<Reach> ReachesOf(const MatmulGeometry& g, std::size_t axis, int phase) {
  std::vector<Reach> reaches;
  const int kernel = static_cast<int>(axis == 0 ? g.w.h : g.w.w);
  for (int k = 0; k < kernel; ++k) {
    const int from = phase + g.padding[axis] - k * g.dilation[axis];
    if (from % g.stride[axis] == 0) reaches.push_back({k, from / g.stride[axis]});
  }
  return reaches;
}

// A layout in which oneDNN wants weights or writes their gradient. Opaque outside
// onednn_matmul.cpp.
class WeightLayout;

bool SameLayout(const WeightLayout& a, const WeightLayout& b);
std::size_t LayoutBytes(const WeightLayout& layout);
// Between PyTorch's order and a layout.
void ToLayout(const MatmulGeometry& geometry, const float* plain, const WeightLayout& layout,
              float* out);
void FromLayout(const MatmulGeometry& geometry, const WeightLayout& layout, const float* in,
                float* plain);

}  // namespace ada::backend::cpu
