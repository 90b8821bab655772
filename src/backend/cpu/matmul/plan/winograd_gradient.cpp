// See winograd_gradient.h.
#include "backend/cpu/matmul/plan/winograd_gradient.h"

#include <algorithm>

#include "backend/cpu/context.h"

namespace ada::backend::cpu {

WinogradGradient::WinogradGradient(const WinogradKernels& kernels, const MatmulGeometry& geometry)
    : kernels_(kernels),
      geometry_(geometry),
      batches_(kernels, geometry.y.h, geometry.y.w,
               std::int64_t{kWinogradPlaces} * 16 * (in_blocks() + out_blocks())) {
  const int tiles = kWinogradPlaces * in_blocks();
  for (int out = 0; out < out_blocks(); ++out) groups_.push_back({1, tiles, out, 0, out * tiles});
}

std::size_t WinogradGradient::scratch_bytes(int) const {
  const std::int64_t z =
      kWinogradPlaces * WinogradBatch::PlaceValues(batches_.room(), out_blocks());
  return static_cast<std::size_t>(v_values() + z) * 4;
}
std::int64_t WinogradGradient::partial_values() const {
  return sum_values() + (geometry_.bias ? 16 * out_blocks() : 0);
}

// Only the first batch sets the partial gradient; the others add.
void WinogradGradient::Run(TensorSpan x, TensorSpan dy, int images, bool first, float* partial,
                           std::byte* scratch) const {
  const auto images_of = [](TensorSpan values, const Shape& s) {
    return WinogradImages{values, static_cast<int>(s.h), static_cast<int>(s.w),
                          static_cast<int>(s.c)};
  };
  WinogradInputArgs input;
  input.x = images_of(x, geometry_.x);
  input.top = geometry_.padding[0], input.left = geometry_.padding[1];
  input.v = reinterpret_cast<float*>(scratch);
  WinogradGradientArgs a;
  a.v = input.v, a.in_channels = input.x.c;
  a.dy = images_of(dy, geometry_.y);
  a.z = input.v + v_values();
  a.first = first, a.partial = partial;
  if (geometry_.bias) a.bias = partial + sum_values();
  batches_.ForEach(images, [&](const WinogradBatch& batch) {
    input.batch = a.batch = batch;
    kernels_.transform_input(input);
    kernels_.gradient(a);
    a.first = false;
  });
}

void WinogradGradient::ToPlain(const GradientGroup& group, const float* partial, float* dw) const {
  WinogradPlainArgs a;
  a.partial = partial + group.first_value();
  a.outs = std::min(16, static_cast<int>(geometry_.y.c) - 16 * group.out);
  a.ins = static_cast<int>(geometry_.x.c);
  a.dw = dw + std::int64_t{16} * group.out * 9 * a.ins;
  kernels_.plain_gradient(a);
}
void WinogradGradient::BiasToPlain(const float* partial, float* db) const {
  std::copy_n(partial + sum_values(), geometry_.y.c, db);
}

// Sums of which Gt . G is dw: for its rows, and then for its columns, 0 -> place 0, 1 -> place 1
// and, with the other sign, 2, and 2 -> place 3.
void WinogradGradient::AddPlain(const float* dw, const float* db, bool first,
                                float* partial) const {
  if (first) std::fill_n(partial, partial_values(), 0.0f);
  struct Share {
    int place, from;
    float sign;
  };
  constexpr Share kShares[] = {{0, 0, 1}, {1, 1, 1}, {2, 1, -1}, {3, 2, 1}};
  const std::int64_t place_values = std::int64_t{256} * in_blocks();
  for (std::int64_t o = 0; o < geometry_.y.c; ++o)
    for (std::int64_t i = 0; i < geometry_.x.c; ++i, dw += 9) {
      float* const at = partial + o / 16 * block_values() + i * 16 + o % 16;
      for (const Share& row : kShares)
        for (const Share& column : kShares)
          at[(4 * row.place + column.place) * place_values] +=
              row.sign * column.sign * dw[3 * row.from + column.from];
    }
  for (std::int64_t o = 0; db != nullptr && o < geometry_.y.c; ++o)
    partial[sum_values() + o] += db[o];
}

}  // namespace ada::backend::cpu
