// Convolution and linear layers as loops over all products, in double: the truth for the library's.
#pragma once
#include <array>
#include <string>

#include "backend/op_bench.h"

namespace ada::backend::test {

// A linear layer is the convolution whose kernel is the whole image.
struct MatmulCase {
  std::string name;
  Shape x;
  std::int64_t out = 1;
  std::array<int, 2> kernel = {1, 1}, stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  int groups = 1;
  bool bias = false, linear = false;
  // The convolution from y to x the other way round; rows and columns more of y.
  bool transposed = false;
  std::array<int, 2> output_padding = {0, 0};

  Shape y() const {
    if (transposed) return {x.n, Enlarged(0, x.h), Enlarged(1, x.w), out};
    const std::int64_t h = x.h + 2 * padding[0] - dilation[0] * (kernel[0] - 1) - 1;
    const std::int64_t w = x.w + 2 * padding[1] - dilation[1] * (kernel[1] - 1) - 1;
    return {x.n, h / stride[0] + 1, w / stride[1] + 1, out};
  }
  Shape w() const {
    if (transposed) return {x.c, kernel[0], kernel[1], out / groups};
    return {out, kernel[0], kernel[1], x.c / groups};
  }
  std::int64_t Enlarged(std::size_t axis, std::int64_t size) const {
    return (size - 1) * stride[axis] - 2 * padding[axis] + dilation[axis] * (kernel[axis] - 1) + 1 +
           output_padding[axis];
  }
};
inline MatmulCase LinearCase(const std::string& name, const Shape& x, std::int64_t out, bool bias) {
  MatmulCase c;
  c.name = name, c.x = x, c.out = out, c.bias = bias, c.linear = true;
  c.kernel = {static_cast<int>(x.h), static_cast<int>(x.w)};
  return c;
}

inline MatmulCase Transposed(MatmulCase c, const std::array<int, 2>& output_padding = {0, 0}) {
  c.transposed = true, c.output_padding = output_padding;
  return c;
}

// The same of a transposed convolution: each value of x goes to a window of y. w is [in, out /
// groups, kh, kw].
template <class Body>
void ForTransposedMatmuls(const MatmulCase& c, std::int64_t rows, Body&& product) {
  const Shape y = c.y();
  const std::int64_t in = c.x.c, group_in = in / c.groups, group_out = c.out / c.groups;
  for (std::int64_t xi = 0; xi < rows * c.x.per_image(); ++xi) {
    const std::int64_t i = xi % in, ix = xi / in % c.x.w, iy = xi / in / c.x.w % c.x.h;
    const std::int64_t n = xi / c.x.per_image();
    for (std::int64_t kh = 0; kh < c.kernel[0]; ++kh)
      for (std::int64_t kw = 0; kw < c.kernel[1]; ++kw) {
        const std::int64_t h = iy * c.stride[0] - c.padding[0] + kh * c.dilation[0];
        const std::int64_t w = ix * c.stride[1] - c.padding[1] + kw * c.dilation[1];
        if (h < 0 || h >= y.h || w < 0 || w >= y.w) continue;
        for (std::int64_t o = 0; o < group_out; ++o)
          product(xi, ((i * group_out + o) * c.kernel[0] + kh) * c.kernel[1] + kw,
                  ((n * y.h + h) * y.w + w) * c.out + i / group_in * group_out + o);
      }
  }
}

// product(xi, wi, yi) for each product of the layer: y[yi] gets x[xi] * w[wi]. x and y are NHWC, w
// is [out, in / groups, kh, kw] as in PyTorch.
template <class Body>
void ForProducts(const MatmulCase& c, std::int64_t rows, Body&& product) {
  if (c.transposed) return ForTransposedMatmuls(c, rows, product);
  const Shape y = c.y();
  const std::int64_t in = c.x.c / c.groups, group_out = c.out / c.groups;
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t oh = 0; oh < y.h; ++oh)
      for (std::int64_t ow = 0; ow < y.w; ++ow)
        for (std::int64_t o = 0; o < c.out; ++o)
          for (std::int64_t kh = 0; kh < c.kernel[0]; ++kh)
            for (std::int64_t kw = 0; kw < c.kernel[1]; ++kw) {
              const std::int64_t h = oh * c.stride[0] - c.padding[0] + kh * c.dilation[0];
              const std::int64_t w = ow * c.stride[1] - c.padding[1] + kw * c.dilation[1];
              if (h < 0 || h >= c.x.h || w < 0 || w >= c.x.w) continue;
              for (std::int64_t i = 0; i < in; ++i)
                product(((n * c.x.h + h) * c.x.w + w) * c.x.c + o / group_out * in + i,
                        ((o * in + i) * c.kernel[0] + kh) * c.kernel[1] + kw,
                        ((n * y.h + oh) * y.w + ow) * c.out + o);
            }
}

// All results for `rows` images; y with the bias, gradients as products of what dy holds.
struct NaiveMatmul {
  Sums y, dx, dw, db;
};
inline NaiveMatmul ComputeNaively(const MatmulCase& c, std::int64_t rows, const Values& x,
                                  const Values& w, const Values& b, const Values& dy) {
  const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  NaiveMatmul r;
  r.y.resize(size(rows * c.y().per_image()));
  r.dx.resize(size(rows * c.x.per_image()));
  r.dw.resize(size(c.w().numel()));
  r.db.resize(size(c.out));
  for (std::size_t i = 0; i < r.y.size(); ++i) {
    if (c.bias) r.y[i].Add(static_cast<double>(b[i % size(c.out)]));
    r.db[i % size(c.out)].Add(static_cast<double>(dy[i]));
  }
  ForProducts(c, rows, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi) {
    const auto a = static_cast<double>(x[size(xi)]), f = static_cast<double>(w[size(wi)]),
               g = static_cast<double>(dy[size(yi)]);
    r.y[size(yi)].Add(a * f);
    r.dw[size(wi)].Add(a * g);
    r.dx[size(xi)].Add(f * g);
  });
  return r;
}

// Formats by role; dw is fp32.
struct MatmulFormats {
  NumberFormat x, w, y, dy, dx;
};

// The op of such a layer with all else as `spec` says.
inline std::unique_ptr<Op> MakeMatmul(Backend& backend, const MatmulCase& c,
                                      const MatmulSpec& spec) {
  if (c.linear) {
    LinearSpec linear;
    static_cast<MatmulSpec&>(linear) = spec;
    return backend.Make(linear);
  }
  const auto windowed = [&](auto conv) {
    static_cast<MatmulSpec&>(conv) = spec;
    conv.stride = c.stride, conv.padding = c.padding, conv.dilation = c.dilation;
    conv.groups = c.groups;
    return backend.Make(conv);
  };
  return c.transposed ? windowed(ConvTranspose2dSpec()) : windowed(Conv2dSpec());
}

// The layer on a backend with random values; alpha is the layer's fixed scale.
struct MatmulBench {
  MatmulBench(Bench& bench, const MatmulCase& c, const NumberFormat& format, float scale,
              double alpha)
      : MatmulBench(bench, c, {format, format, format, format, format}, scale, alpha) {}
  MatmulBench(Bench& bench, const MatmulCase& c, const MatmulFormats& formats, float scale,
              double alpha)
      : product(c) {
    const auto n = [](const Shape& shape) { return static_cast<std::size_t>(shape.numel()); };
    scaler.rule.method = scaling::LayerMethod::kFixed;
    scaler.rule.fixed_scale = alpha;
    spec.layer = c.name;
    spec.x = bench.Make(c.x, formats.x, Normal(n(c.x), 1, 1));
    spec.w = bench.Make(c.w(), kFp32, Normal(n(c.w()), 0.3, 2));
    spec.w_format = formats.w;
    if (c.bias) {
      spec.b = bench.Vector(Normal(static_cast<std::size_t>(c.out), 1, 3));
      spec.db = bench.Make(spec.b.shape, kFp32);
    }
    spec.y = bench.Make(c.y(), formats.y);
    spec.y_stats = bench.Stats(), spec.w_stats = bench.Stats(), spec.dw_stats = bench.Stats();
    spec.dy = bench.MakeGradient(c.y(), formats.dy, Normal(n(c.y()), 1, 4), scale);
    spec.dx = bench.MakeGradient(c.x, formats.dx);
    spec.dw = bench.Make(c.w(), kFp32);
    spec.scaler = &scaler;
  }
  std::unique_ptr<Op> MakeOp(Bench& bench) const { return MakeMatmul(*bench, product, spec); }
  // One step of `op` over the pass's rows.
  void Step(Op& op, const Pass& pass) const {
    op.RefreshWeights(pass);
    op.Forward(pass);
    op.Backward(pass);
  }

  MatmulCase product;
  MatmulSpec spec;
  scaling::LayerScaler scaler;
};

// Products of every kind that a network may hold.
inline std::vector<MatmulCase> SmallMatmuls() {
  const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, five = {5, 5}, no = {0, 0};
  return {{"3x3 of images", {5, 7, 6, 3}, 16, three, one, one, one, 1, false},
          {"3x3, 16 channels", {5, 6, 6, 16}, 16, three, one, one, one, 1, false},
          {"3x3, 17 to 10, bias", {4, 5, 5, 17}, 10, three, one, one, one, 1, true},
          {"1 channel, 5x5, bias", {5, 9, 9, 1}, 6, five, one, two, one, 1, true},
          {"10 channels, 5x5", {3, 8, 7, 10}, 17, five, one, no, one, 1, false},
          {"stride 2", {5, 8, 8, 16}, 32, three, two, one, one, 1, false},
          {"stride 2, odd size", {3, 7, 9, 10}, 16, three, two, one, one, 1, true},
          {"stride 2 leaves a rest", {3, 8, 8, 3}, 8, three, two, no, one, 1, false},
          {"1x1", {5, 5, 5, 16}, 17, one, one, no, one, 1, false},
          {"1x1, stride 2", {5, 7, 7, 16}, 32, one, two, no, one, 1, false},
          {"1x1, padded", {2, 4, 4, 3}, 5, one, one, one, one, 1, true},
          {"dilation 2", {4, 9, 9, 10}, 10, three, one, two, two, 1, false},
          {"dilation 3 and 2", {3, 11, 9, 3}, 16, three, one, {3, 1}, {3, 2}, 1, true},
          {"2 groups", {4, 6, 6, 16}, 10, three, one, one, one, 2, true},
          {"depthwise, 10", {4, 6, 6, 10}, 10, three, one, one, one, 10, false},
          {"depthwise, 16", {4, 6, 6, 16}, 16, three, one, one, one, 16, true},
          {"depthwise, twice", {3, 6, 6, 3}, 6, three, two, one, one, 3, false},
          {"kernel 3x1", {4, 7, 5, 10}, 16, {3, 1}, one, {1, 0}, one, 1, false},
          {"kernel 2x5, stride 1x2", {3, 6, 9, 3}, 10, {2, 5}, {1, 2}, {1, 2}, one, 1, true},
          {"even kernel", {3, 6, 6, 16}, 8, two, two, no, one, 1, false},
          LinearCase("linear", {7, 1, 1, 64}, 10, true),
          LinearCase("linear, no bias", {5, 1, 1, 17}, 33, false),
          LinearCase("linear of one", {5, 1, 1, 1}, 1, true),
          LinearCase("linear of images", {5, 4, 3, 16}, 10, true),
          LinearCase("linear of odd images", {3, 3, 5, 7}, 10, false)};
}

inline std::vector<MatmulCase> TransposedMatmuls() {
  const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, no = {0, 0};
  return {
      Transposed({"2x2, stride 2", {5, 4, 5, 16}, 16, two, two, no, one, 1, true}),
      Transposed({"3x3, stride 2, one row more", {4, 5, 4, 10}, 17, three, two, one, one, 1}, one),
      Transposed({"4x4, stride 2", {3, 4, 4, 17}, 3, {4, 4}, two, one, one, 1, true}),
      Transposed({"3x3, stride 1", {4, 6, 5, 16}, 8, three, one, one, one, 1, false}),
      Transposed({"1x1", {5, 3, 4, 3}, 7, one, one, no, one, 1, true}),
      Transposed({"1x1, padded", {2, 5, 5, 6}, 4, one, one, one, one, 1, false}),
      Transposed({"stride beyond the kernel", {3, 4, 3, 5}, 4, two, three, no, one, 1, true}, two),
      Transposed({"dilation 2", {3, 5, 4, 6}, 10, three, two, one, two, 1, true}, {1, 0}),
      Transposed({"2 groups", {4, 4, 5, 16}, 10, three, two, one, one, 2, true}, {0, 1}),
      Transposed({"depthwise", {4, 4, 5, 16}, 16, two, two, no, one, 16, true}),
      Transposed({"kernel 2x5, stride 1x2", {3, 4, 5, 3}, 10, {2, 5}, {1, 2}, {1, 2}, one, 1})};
}
inline std::vector<MatmulCase> AllMatmuls() {
  std::vector<MatmulCase> all = SmallMatmuls();
  for (const MatmulCase& c : TransposedMatmuls()) all.push_back(c);
  return all;
}

}  // namespace ada::backend::test
