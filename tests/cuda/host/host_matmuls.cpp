// Products of the host executor: naive loops with sums in double, in the order of the weights.
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/matmuls.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {
namespace {

// body(y, x, w) for each product that counts towards y[y]: indices in the three tensors.
template <class Body>
void ForProducts(const MatmulGeometry& g, std::int64_t n, std::int64_t row, std::int64_t column,
                 std::int64_t out, Body&& body) {
  const std::int64_t group = out / (g.w.n / g.groups), first = group * g.w.c;
  const std::int64_t y = ((n * g.y.h + row) * g.y.w + column) * g.y.c + out;
  for (std::int64_t kh = 0; kh < g.w.h; ++kh) {
    const std::int64_t h = row * g.stride[0] - g.padding[0] + kh * g.dilation[0];
    if (h < 0 || h >= g.x.h) continue;
    for (std::int64_t kw = 0; kw < g.w.w; ++kw) {
      const std::int64_t w = column * g.stride[1] - g.padding[1] + kw * g.dilation[1];
      if (w < 0 || w >= g.x.w) continue;
      for (std::int64_t c = 0; c < g.w.c; ++c)
        body(y, ((n * g.x.h + h) * g.x.w + w) * g.x.c + first + c,
             ((out * g.w.h + kh) * g.w.w + kw) * g.w.c + c);
    }
  }
}
template <class Body>
void ForAllTerms(const MatmulGeometry& g, Body&& body) {
  for (std::int64_t n = 0; n < g.x.n; ++n)
    for (std::int64_t row = 0; row < g.y.h; ++row)
      for (std::int64_t column = 0; column < g.y.w; ++column)
        for (std::int64_t out = 0; out < g.y.c; ++out) ForProducts(g, n, row, column, out, body);
}

class HostMatmul final : public Matmul {
 public:
  HostMatmul(Stream& stream, const MatmulRequest& request) : stream_(stream), request_(request) {}

  void Run(const MatmulArguments& arguments) override {
    stream_.Run("product", [request = request_, arguments](bool) { Compute(request, arguments); });
  }

 private:
  static std::vector<float> Widen(const MatmulRequest& r, int operand, const void* data,
                                  std::int64_t n) {
    const TensorSpan span{const_cast<void*>(data), r.operands};
    const Fp8 format = r.codes[static_cast<std::size_t>(operand)];
    std::vector<float> wide(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      wide[static_cast<std::size_t>(i)] =
          format == Fp8::kNone ? Load(span, i)
                               : FromFp8(format, static_cast<const std::uint8_t*>(data)[i]);
    return wide;
  }

  static void Compute(const MatmulRequest& r, const MatmulArguments& arguments) {
    const MatmulGeometry& g = r.geometry;
    const bool forward = r.kind == MatmulKind::kForward, data = r.kind == MatmulKind::kData;
    const auto [first, second, out] = ShapesOf(r);
    const std::vector<float> a = Widen(r, 0, arguments.first, first.numel());
    const std::vector<float> b = Widen(r, 1, arguments.second, second.numel());
    std::vector<double> sums(static_cast<std::size_t>(out.numel()));
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    ForAllTerms(g, [&](std::int64_t y, std::int64_t x, std::int64_t w) {
      if (forward)
        sums[at(y)] += static_cast<double>(a[at(x)]) * static_cast<double>(b[at(w)]);
      else if (data)
        sums[at(x)] += static_cast<double>(a[at(y)]) * static_cast<double>(b[at(w)]);
      else
        sums[at(w)] += static_cast<double>(a[at(x)]) * static_cast<double>(b[at(y)]);
    });
    const float scale = r.scale && arguments.scale != nullptr ? *arguments.scale : 1;
    for (std::int64_t i = 0; i < out.numel(); ++i) {
      const float value = static_cast<float>(sums[at(i)]) * scale;
      StoreExact({arguments.out, r.out}, i, value);
    }
  }

  Stream& stream_;
  MatmulRequest request_;
};

class HostBatchedMatmul final : public BatchedMatmul {
 public:
  HostBatchedMatmul(Stream& stream, const BatchedRequest& request)
      : stream_(stream), request_(request) {}
  void Run(const void* first, const void* second, float* out, int batches) override {
    stream_.Run("products", [r = request_, first, second, out, batches](bool) {
      for (std::int64_t b = 0; b < batches; ++b)
        for (std::int64_t i = 0; i < r.rows; ++i)
          for (std::int64_t j = 0; j < r.columns; ++j)
            out[(b * r.rows + i) * r.columns + j] = Sum(r, first, second, b, i, j);
    });
  }

 private:
  static float Sum(const BatchedRequest& r, const void* first, const void* second, std::int64_t b,
                   std::int64_t i, std::int64_t j) {
    const TensorSpan f{const_cast<void*>(first), r.operands};
    const TensorSpan s{const_cast<void*>(second), r.operands};
    const std::int64_t of_first = b * r.rows * r.terms, of_second = b * r.terms * r.columns;
    double sum = 0;
    for (std::int64_t k = 0; k < r.terms; ++k)
      sum += static_cast<double>(
                 Load(f, of_first + (r.transpose_first ? k * r.rows + i : i * r.terms + k))) *
             static_cast<double>(
                 Load(s, of_second + (r.transpose_second ? j * r.terms + k : k * r.columns + j)));
    return static_cast<float>(sum);
  }
  Stream& stream_;
  BatchedRequest request_;
};

class HostMatmuls final : public Matmuls {
 public:
  explicit HostMatmuls(Stream& stream) : stream_(stream) {}
  // Null where cuDNN has no plan either: a weight gradient of 16-bit operands for an odd number of
  // input channels.
  std::unique_ptr<Matmul> Make(const MatmulRequest& request) override {
    const MatmulGeometry& g = request.geometry;
    if (request.kind == MatmulKind::kWeights && request.operands != Storage::kF32 && !IsMatrix(g) &&
        g.x.c % 2 != 0)
      return nullptr;
    return std::make_unique<HostMatmul>(stream_, request);
  }
  std::unique_ptr<BatchedMatmul> MakeBatched(const BatchedRequest& request) override {
    return std::make_unique<HostBatchedMatmul>(stream_, request);
  }

 private:
  Stream& stream_;
};

}  // namespace

std::unique_ptr<Matmuls> MakeMatmuls(Stream& stream, const DeviceOptions&) {
  return std::make_unique<HostMatmuls>(stream);
}

}  // namespace ada::backend::cuda
