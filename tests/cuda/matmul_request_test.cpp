// What is asked of the libraries of products, and the cache of their plans: no device is needed.
#include "backend/cuda/matmul_request.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "backend/cuda/matmul/plan_choice.h"
#include "temp_folder.h"

namespace ada::backend::cuda {
namespace {

MatmulGeometry Convolution() {
  MatmulGeometry g;
  g.x = {8, 14, 14, 64}, g.w = {128, 3, 3, 64}, g.y = {8, 7, 7, 128};
  g.stride = {2, 2}, g.padding = {1, 1};
  return g;
}
MatmulGeometry Linear() {
  MatmulGeometry g;
  g.linear = true;
  g.x = {5, 1, 1, 7}, g.w = {3, 1, 1, 7}, g.y = {5, 1, 1, 3};
  return g;
}

// A convolution of 1x1 over pixels.
MatmulGeometry Pixels() {
  MatmulGeometry g;
  g.x = {5, 2, 3, 7}, g.w = {3, 1, 1, 7}, g.y = {5, 2, 3, 3};
  return g;
}

// C of a matrix product as BLAS defines it, all matrices by columns.
std::vector<double> Multiply(const ColumnMatmul& p, const std::vector<double>& first,
                             const std::vector<double>& second) {
  const std::vector<double>&a = p.a_is_first ? first : second, &b = p.a_is_first ? second : first;
  std::vector<double> c(static_cast<std::size_t>(p.ldc * p.n));
  const auto at = [](std::int64_t row, std::int64_t column, std::int64_t ld, bool transposed) {
    return static_cast<std::size_t>(transposed ? row * ld + column : column * ld + row);
  };
  for (std::int64_t i = 0; i < p.m; ++i)
    for (std::int64_t j = 0; j < p.n; ++j)
      for (std::int64_t k = 0; k < p.k; ++k)
        c[at(i, j, p.ldc, false)] +=
            a[at(i, k, p.lda, p.transpose_a)] * b[at(k, j, p.ldb, p.transpose_b)];
  return c;
}
std::vector<double> Numbers(std::int64_t n, double start) {
  std::vector<double> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = start + static_cast<double>(i * i % 11);
  return x;
}

// All three matmuls against loops over rows of x and y.
void CheckMatrices(const MatmulGeometry& geometry) {
  const std::int64_t rows = geometry.x.n * geometry.x.h * geometry.x.w, in = geometry.x.c,
                     out = geometry.y.c;
  const std::vector<double> x = Numbers(rows * in, 1), w = Numbers(out * in, -3),
                            dy = Numbers(rows * out, 2);
  std::vector<double> y(static_cast<std::size_t>(rows * out)), dx(x.size()), dw(w.size());
  for (std::int64_t n = 0; n < rows; ++n)
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t i = 0; i < in; ++i) {
        const auto xi = static_cast<std::size_t>(n * in + i),
                   wi = static_cast<std::size_t>(o * in + i),
                   yi = static_cast<std::size_t>(n * out + o);
        y[yi] += x[xi] * w[wi], dx[xi] += dy[yi] * w[wi], dw[wi] += dy[yi] * x[xi];
      }
  const auto product = [&](MatmulKind kind) {
    return ColumnMatmulOf({kind, geometry, Storage::kF32, Storage::kF32});
  };
  CHECK(Multiply(product(MatmulKind::kForward), x, w) == y);
  CHECK(Multiply(product(MatmulKind::kData), dy, w) == dx);
  CHECK(Multiply(product(MatmulKind::kWeights), x, dy) == dw);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("products: operands have 16 bits where both formats do, else fp32") {
    NumberFormat saturating = kFp16;
    saturating.saturate = true;
    CHECK(OperandsOf(kFp16, kFp16) == Storage::kF16);
    CHECK(OperandsOf(kFp16, saturating) == Storage::kF16);
    CHECK(OperandsOf(kBf16, kBf16) == Storage::kBF16);
    CHECK(OperandsOf(kFp16, kBf16) == Storage::kF32);
    CHECK(OperandsOf(kFp16, kFp32) == Storage::kF32);
    CHECK(OperandsOf(kFp8E4M3, kFp8E4M3) == Storage::kF32);
    CHECK(OperandsOf(kCb16, kCb16) == Storage::kF32);
  }

  TEST_CASE("products: requests go from what is best to what always works") {
    const auto plain =
        RequestsFor(MatmulKind::kData, Convolution(), 8, Storage::kF16, PlanOutput::kSums);
    REQUIRE(plain.size() == 2);
    CHECK(plain[0].operands == Storage::kF16);
    CHECK(plain[0].out == Storage::kF32);
    CHECK_FALSE(plain[0].scale);
    CHECK(plain[1].operands == Storage::kF32);

    const auto scaled = RequestsFor(MatmulKind::kData, Convolution(), 8, Storage::kBF16,
                                    PlanOutput::kScaledAndRounded);
    REQUIRE(scaled.size() == 3);
    CHECK(scaled[0].out == Storage::kBF16);
    CHECK(scaled[0].scale);
    CHECK_FALSE(scaled[1].scale);

    const auto rounded =
        RequestsFor(MatmulKind::kForward, Convolution(), 8, Storage::kF16, PlanOutput::kRounded);
    REQUIRE(rounded.size() == 3);
    CHECK(rounded[0].out == Storage::kF16);
    CHECK_FALSE(rounded[0].scale);
    CHECK(std::vector(rounded.begin() + 1, rounded.end()) ==
          RequestsFor(MatmulKind::kForward, Convolution(), 8, Storage::kF16, PlanOutput::kSums));

    CHECK(RequestsFor(MatmulKind::kForward, Convolution(), 8, Storage::kF32, PlanOutput::kRounded)
              .size() == 1);
    CHECK(
        RequestsFor(MatmulKind::kForward, Linear(), 5, Storage::kF16, PlanOutput::kRounded) ==
        std::vector<MatmulRequest>{{MatmulKind::kForward, Linear(), Storage::kF16, Storage::kF16},
                                   {MatmulKind::kForward, Linear(), Storage::kF16, Storage::kF32},
                                   {MatmulKind::kForward, Linear(), Storage::kF32, Storage::kF32}});
    const auto fewer =
        RequestsFor(MatmulKind::kWeights, Convolution(), 3, Storage::kF16, PlanOutput::kSums);
    CHECK(fewer[0].geometry.x.n == 3);
    CHECK(fewer[0].geometry.y.n == 3);
  }

  TEST_CASE("products: weight gradients of few channels are asked for with more as well") {
    const auto channels = [](MatmulKind kind, std::int64_t c, int groups, Storage operands) {
      MatmulGeometry g = Convolution();
      g.x.c = c, g.w.c = c / groups, g.groups = groups;
      std::vector<std::int64_t> asked;
      for (const MatmulRequest& r : RequestsFor(kind, g, 4, operands, PlanOutput::kSums)) {
        CHECK(r.geometry.w.c * groups == r.geometry.x.c);
        CHECK((r.operands == operands || r.geometry.x.c == c));  // fp32 is never padded
        asked.push_back(r.geometry.x.c);
      }
      return asked;
    };
    using Channels = std::vector<std::int64_t>;
    CHECK(channels(MatmulKind::kWeights, 3, 1, Storage::kF16) == Channels{3, 4, 8, 3});
    CHECK(channels(MatmulKind::kWeights, 1, 1, Storage::kBF16) == Channels{1, 4, 8, 1});
    CHECK(channels(MatmulKind::kWeights, 12, 1, Storage::kF16) == Channels{12, 16, 12});
    CHECK(channels(MatmulKind::kWeights, 13, 1, Storage::kF16) == Channels{13, 16, 13});
    CHECK(channels(MatmulKind::kWeights, 16, 1, Storage::kF16) == Channels{16, 16});
    CHECK(channels(MatmulKind::kWeights, 3, 3, Storage::kF16) == Channels{3, 3});
    CHECK(channels(MatmulKind::kWeights, 3, 1, Storage::kF32) == Channels{3});
    CHECK(channels(MatmulKind::kForward, 3, 1, Storage::kF16) == Channels{3, 3});
    CHECK(channels(MatmulKind::kData, 3, 1, Storage::kF16) == Channels{3, 3});
  }

  TEST_CASE("products: fp8 operands are asked for as codes first, and then as fp32") {
    NumberFormat saturating = kFp8E4M3;
    saturating.saturate = true;
    CHECK(Fp8Of(saturating) == Fp8::kE4M3);
    CHECK(Fp8Of(kFp8E5M2) == Fp8::kE5M2);
    CHECK(Fp8Of(kFp16) == Fp8::kNone);
    CHECK(Fp8Of({4, 3, 8, false, true, false}) == Fp8::kNone);  // fp8_e4m3_fnuz

    const auto requests = RequestsFor(MatmulKind::kData, Convolution(), 8, Storage::kF32,
                                      PlanOutput::kSums, {Fp8::kE5M2, Fp8::kE4M3});
    REQUIRE(requests.size() == 2);
    CHECK(HasCodes(requests[0]));
    CHECK(requests[0].scale);
    CHECK(requests[0].out == Storage::kF32);
    CHECK(OperandBytes(requests[0]) == 1);
    CHECK(Describe(requests[0]) == "data gradient of fp8_e5m2 and fp8_e4m3 operands in fp32");
    CHECK_FALSE(HasCodes(requests[1]));
    CHECK(OperandBytes(requests[1]) == 4);
    CHECK(RequestsFor(MatmulKind::kForward, Linear(), 5, Storage::kF32, PlanOutput::kSums,
                      {Fp8::kE4M3, Fp8::kE4M3})
              .size() == 2);
  }

  TEST_CASE("products: sums of 16-bit operands and scaled ones need an epilogue") {
    MatmulRequest r{MatmulKind::kForward, Convolution(), Storage::kF16, Storage::kF16};
    CHECK_FALSE(HasEpilogue(r));
    r.scale = true;
    CHECK(HasEpilogue(r));
    r.scale = false, r.out = Storage::kF32;
    CHECK(HasEpilogue(r));
    r.operands = Storage::kF32;
    CHECK_FALSE(HasEpilogue(r));
  }

  TEST_CASE("products: geometry of specs; a linear layer's images are flat") {
    Conv2dSpec conv;
    conv.x.shape = {8, 14, 14, 64}, conv.w.shape = {128, 3, 3, 64}, conv.y.shape = {8, 7, 7, 128};
    conv.stride = {2, 2}, conv.padding = {1, 1};
    CHECK(GeometryOf(conv) == Convolution());
    conv.groups = 2, conv.dilation = {3, 2};
    CHECK(GeometryOf(conv).groups == 2);
    CHECK(GeometryOf(conv).dilation == std::array<int, 2>{3, 2});

    LinearSpec linear;
    linear.x.shape = {5, 3, 2, 4}, linear.w.shape = {10, 3, 2, 4}, linear.y.shape = {5, 1, 1, 10};
    const MatmulGeometry g = GeometryOf(linear);
    CHECK(g.linear);
    CHECK(g.x == Shape{5, 1, 1, 24});
    CHECK(g.w == Shape{10, 1, 1, 24});
  }

  TEST_CASE("products: layouts name channels second and step through them first") {
    const TensorLayout layout = LayoutOf({8, 14, 13, 64});
    CHECK(layout.dims == std::array<std::int64_t, 4>{8, 64, 14, 13});
    CHECK(layout.strides == std::array<std::int64_t, 4>{14 * 13 * 64, 1, 13 * 64, 64});
  }

  TEST_CASE("products: linear layers and convolutions of single pixels are of matrices") {
    CHECK(IsMatrix(Linear()));
    CHECK(IsMatrix(Pixels()));
    const auto with = [](auto&& change) {
      MatmulGeometry g = Pixels();
      change(g);
      return IsMatrix(g);
    };
    CHECK(with([](MatmulGeometry& g) { g.dilation = {2, 2}; }));  // of one value there is none
    CHECK_FALSE(with([](MatmulGeometry& g) { g.stride = {1, 2}; }));
    CHECK_FALSE(with([](MatmulGeometry& g) { g.padding = {1, 0}; }));
    CHECK_FALSE(with([](MatmulGeometry& g) { g.groups = 7; }));
    CHECK_FALSE(with([](MatmulGeometry& g) { g.w.h = 3; }));
    CHECK_FALSE(with([](MatmulGeometry& g) { g.w.w = 2; }));
    // Their weight gradients need no more channels than they have.
    CHECK(RequestsFor(MatmulKind::kWeights, Pixels(), 5, Storage::kF16, PlanOutput::kSums).size() ==
          2);
  }

  TEST_CASE("products: matrix products by columns") {
    for (const MatmulGeometry& geometry : {Linear(), Pixels()}) CheckMatrices(geometry);
  }

  TEST_CASE("products: the key of a plan tells all requests apart") {
    std::vector<MatmulRequest> all;
    const MatmulRequest base{MatmulKind::kForward, Convolution(), Storage::kF16, Storage::kF32};
    const auto with = [&](auto&& change) {
      MatmulRequest r = base;
      change(r);
      all.push_back(r);
    };
    with([](MatmulRequest&) {});
    with([](MatmulRequest& r) { r.kind = MatmulKind::kData; });
    with([](MatmulRequest& r) { r.kind = MatmulKind::kWeights; });
    with([](MatmulRequest& r) { r.operands = Storage::kBF16; });
    with([](MatmulRequest& r) { r.out = Storage::kF16; });
    with([](MatmulRequest& r) { r.scale = true; });
    with([](MatmulRequest& r) { r.codes = {Fp8::kE4M3, Fp8::kE4M3}; });
    with([](MatmulRequest& r) { r.codes = {Fp8::kE4M3, Fp8::kE5M2}; });
    with([](MatmulRequest& r) { r.codes = {Fp8::kE5M2, Fp8::kE4M3}; });
    with([](MatmulRequest& r) { r.codes = {Fp8::kE5M2, Fp8::kE5M2}; });
    with([](MatmulRequest& r) { r.geometry = Linear(); });
    with([](MatmulRequest& r) { r.geometry.x.n = r.geometry.y.n = 4; });
    with([](MatmulRequest& r) { r.geometry.x.h = 13; });
    with([](MatmulRequest& r) { r.geometry.stride = {2, 1}; });
    with([](MatmulRequest& r) { r.geometry.padding = {0, 1}; });
    with([](MatmulRequest& r) { r.geometry.dilation = {2, 2}; });
    with([](MatmulRequest& r) { r.geometry.groups = 2; });
    std::set<std::string> keys;
    for (const MatmulRequest& r : all) {
      CHECK(KeyOf(r).find('\n') == std::string::npos);
      keys.insert(KeyOf(r));
    }
    CHECK(keys.size() == all.size());
  }

  TEST_CASE("plan cache: a plan is found again by the same maker alone") {
    const testing::TempFolder folder;
    const std::vector<std::uint8_t> plan = {1, 0, 255, 10, 7}, other = {4};
    PlanCache cache(folder / "deep/er", "GPU A, cuDNN 1");
    CHECK_FALSE(cache.Find("key").has_value());
    cache.Store("key", plan);
    cache.Store("another key", other);
    CHECK(cache.Find("key") == plan);
    CHECK(PlanCache(folder / "deep/er", "GPU A, cuDNN 1").Find("another key") == other);
    CHECK_FALSE(PlanCache(folder / "deep/er", "GPU A, cuDNN 2").Find("key").has_value());
    cache.Store("key", other);
    CHECK(cache.Find("key") == other);
    CHECK(cache.TakeDiagnostics().empty());
  }

  TEST_CASE("plan cache: damaged and foreign files are passed over with a diagnostic") {
    const testing::TempFolder folder;
    const std::vector<std::uint8_t> plan(100, 42);
    PlanCache cache(folder.path(), "GPU A");
    cache.Store("key", plan);
    const std::string path = cache.PathOf("key");
    std::string whole;
    std::getline(std::ifstream(path, std::ios::binary), whole, '\0');
    const auto damaged = [&](const std::string& bytes) {
      std::ofstream(path, std::ios::binary) << bytes;
      CHECK_FALSE(cache.Find("key").has_value());
      const auto diagnostics = cache.TakeDiagnostics();
      REQUIRE(diagnostics.size() == 1);
      CHECK(diagnostics[0].find(path) != std::string::npos);
      CHECK(cache.TakeDiagnostics().empty());
    };
    damaged("");
    damaged("x");
    damaged(whole.substr(0, whole.size() - 1));
    damaged(whole.substr(0, whole.size() - plan.size()));
    damaged(whole + "x");
    std::string flipped = whole;
    flipped.back() ^= 1;
    damaged(flipped);
    PlanCache foreign(folder.path(), "GPU B");
    foreign.Store("key", plan);
    std::filesystem::copy_file(foreign.PathOf("key"), path,
                               std::filesystem::copy_options::overwrite_existing);
    CHECK_FALSE(cache.Find("key").has_value());
    cache.TakeDiagnostics();
    cache.Store("key", plan);
    CHECK(cache.Find("key") == plan);
  }

  TEST_CASE("plan cache: without a folder nothing is kept, and that is said once") {
    PlanCache none("", "GPU A");
    none.Store("key", {1});
    CHECK_FALSE(none.Find("key").has_value());
    CHECK(none.TakeDiagnostics().empty());

    const testing::TempFolder folder;
    folder.Write("file", "no folder");
    PlanCache blocked(folder / "file/cache", "GPU A");
    blocked.Store("key", {1});
    blocked.Store("key", {1});
    CHECK_FALSE(blocked.Find("key").has_value());
    CHECK(blocked.TakeDiagnostics().size() == 1);
  }
}

}  // namespace ada::backend::cuda
