// Rounding and counting in kernels: every format's grid against the scalar definition, and what a
// rounding point writes against the CPU's: values and counts bit for bit, sums within rounding.
#include <doctest/doctest.h>

#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/naive_bins.h"
#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

Values AllValues(const NumberFormat& format, std::uint64_t seed) {
  Values values = Boundaries(format);
  for (const float v : Spread(format, 5000, seed)) values.push_back(v);
  for (const float v : RandomBits(5000, seed)) values.push_back(v);
  return values;
}

// How one tensor is rounded, in addition to its format.
struct Case {
  std::string name;
  bool stochastic = false, bins = false, counted = true;
  float scale = 0;                                        // of its own; 0: none
  double edge = std::numeric_limits<double>::infinity();  // of the pass
};
const std::vector<Case>& Cases() {
  static const std::vector<Case> cases = {{"nearest"},
                                          {"stochastic", true},
                                          {"edge", false, false, true, 0, 0.25},
                                          {"edge, stochastic", true, false, true, 0, 0.9},
                                          {"bins", false, true},
                                          {"bins, not counted", false, true, false},
                                          {"not counted", false, false, false}};
  return cases;
}

void Add(const std::string& name, const ExponentBins& bins, Findings& findings) {
  std::vector<double> counts(bins.counts.begin(), bins.counts.end());
  for (const std::int64_t n : {bins.zeros, bins.inf, bins.nan})
    counts.push_back(static_cast<double>(n));
  findings.Numbers(name, counts);
}

// y = round(x) in `rows` images of 1 x 1 x c.
void CheckPoint(const Kind& kind, const Case& c, const Values& values, std::int64_t per_image,
                int rows) {
  CAPTURE(kind.name);
  CAPTURE(c.name);
  const Shape shape{static_cast<std::int64_t>(values.size()) / per_image, 1, 1, per_image};
  const Values whole(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shape.numel()));
  OnBoth([&](Lab& lab, Findings& findings) {
    AddSpec spec;
    spec.x = {lab.Make(shape, kFp32, whole)};
    spec.y = lab.Make(shape, kind.format, {}, kind.storage == Storage::kF32);
    spec.y_stats = lab.Share<TensorStats>();
    spec.y_style.stochastic = c.stochastic, spec.y_style.stream = 77;
    spec.y_style.counted = c.counted;
    if (c.scale != 0) spec.y_style.per_tensor_scale = lab.Share(scaling::TensorScaler{c.scale});
    if (c.bins) spec.y_style.bins = lab.Share<ExponentBins>();
    const auto op = lab->Make(spec);
    for (const bool count : {true, false, true}) {
      Pass pass;
      pass.rows = rows, pass.count = count, pass.edge = c.edge, pass.bins = c.bins;
      pass.seed = 0x1234567890abcdefull, pass.draw = count ? 5 : 6;
      op->Forward(pass);
      findings.Add("y", lab, spec.y);
      const TensorStats stats = lab.Fetched(spec.y_stats);
      findings.Numbers("numel", {static_cast<double>(stats.numel)});
      findings.Numbers("max_abs", {static_cast<double>(stats.max_abs), stats.full ? 1.0 : 0.0});
      if (stats.full) findings.Add("stats", stats);
      if (c.bins && count) Add("bins", lab.Fetched(spec.y_style.bins), findings);
    }
  });
}

// A cast: dx = round(dy), whose moments a policy asks for; dy in fp32.
void CheckMoments(const Kind& kind, const Values& values, bool all) {
  CAPTURE(kind.name);
  CAPTURE(all);
  const Shape shape{static_cast<std::int64_t>(values.size()) / 7, 7, 1, 1};
  const Values whole(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(shape.numel()));
  OnBoth([&](Lab& lab, Findings& findings) {
    ScaleSpec spec;
    spec.x = lab.Make(shape, kind.format), spec.y = lab.Make(shape, kFp32);
    spec.dy = lab.MakeGradient(shape, kFp32, 3, whole);
    spec.dx = lab.MakeGradient(shape, kFp32);
    spec.dx.tensor = lab.Make(shape, kind.format, {}, kind.storage == Storage::kF32);
    spec.dx.all_moments = all;
    spec.scaler = lab.Share<scaling::LayerScaler>();
    const auto op = lab->Make(spec);
    for (const bool count : {false, true}) {
      Pass pass;
      pass.rows = static_cast<int>(shape.n) - 1, pass.count = count;
      op->Backward(pass);
      findings.Add("dx", lab, spec.dx.tensor);
      const TensorMoments moments = lab.Fetched(spec.dx.moments);
      findings.Add("moments", moments);
      if (all)
        findings.Numbers("mean", {moments.mean + 1e3 * std::sqrt(moments.mean_square)}, 1e-6);
    }
  });
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("grids: nearest and stochastic rounding of every format is the scalar definition's") {
    for (const Kind& kind : AllKinds()) {
      CAPTURE(kind.name);
      const NumberGrid grid = GridOf(kind.format);
      Values got, want, got_random, want_random;
      RandomStream random(7, 8);
      for (const float v : AllValues(kind.format, 3)) {
        const std::uint32_t word = random.NextU32();
        got.push_back(RoundToGrid(grid, v)), want.push_back(RoundTo(kind.format, v));
        for (const std::uint32_t w : {word, 0u, 0xffffffffu}) {
          got_random.push_back(RoundRandomlyToGrid(grid, v, w));
          want_random.push_back(RoundStochastically(kind.format, v, w));
        }
      }
      CHECK(FirstDifference(got, want) == -1);
      CHECK(FirstDifference(got_random, want_random) == -1);
    }
  }

  TEST_CASE("grids: signs of zeros and of NaN") {
    for (const Kind& kind : AllKinds()) {
      CAPTURE(kind.name);
      const NumberGrid grid = GridOf(kind.format);
      for (const float v : {0.0f, -0.0f, 1e-40f, -1e-40f, std::nanf(""), -std::nanf("")})
        CHECK(std::signbit(RoundToGrid(grid, v)) == std::signbit(RoundTo(kind.format, v)));
    }
  }

  TEST_CASE("storage: what is stored is loaded again, one by one and by four") {
    for (const Kind& kind : AllKinds()) {
      CAPTURE(kind.name);
      Values values;
      for (const float v : AllValues(kind.format, 4)) values.push_back(RoundTo(kind.format, v));
      while (values.size() % 4 != 0) values.push_back(1);
      const std::size_t n = values.size();
      std::vector<cuda::Vec4> one_memory(n / 4), four_memory(n / 4);
      const cuda::TensorSpan ones{one_memory.data(), kind.storage},
          vec4{four_memory.data(), kind.storage};
      Values by_one(n), by_four(n);
      for (std::size_t i = 0; i < n; ++i)
        cuda::StoreExact(ones, static_cast<std::int64_t>(i), values[i]);
      for (std::size_t i = 0; i < n; i += 4) {
        const auto at = static_cast<std::int64_t>(i);
        cuda::StoreVec4(vec4, at, {values[i], values[i + 1], values[i + 2], values[i + 3]});
        const cuda::Vec4 four = cuda::LoadVec4(ones, at);
        std::copy(four.of, four.of + 4, by_four.begin() + static_cast<std::ptrdiff_t>(i));
      }
      for (std::size_t i = 0; i < n; ++i)
        by_one[i] = cuda::Load(vec4, static_cast<std::int64_t>(i));
      CHECK(FirstDifference(by_one, values) == -1);
      CHECK(FirstDifference(by_four, values) == -1);
    }
  }

  TEST_CASE("bins: floor(log2) of the quotient by any scale") {
    for (const float scale : {1.0f, 1.5f, 3.0f, 0x1.fffffep10f, 0x1p-140f, 0x1.8p-130f, 0x1p127f}) {
      CAPTURE(scale);
      const SplitScale split = Split(scale);
      std::size_t wrong = 0;
      for (const float v : WildValues(4096, 1, 9)) {
        if (v == 0 || !std::isfinite(v)) continue;
        const int bin = cuda::BinOf(MagnitudeBits(v), split.mantissa);
        const int exponent = bin + cuda::LaunchBins::kLowest - split.exponent;
        wrong += exponent != ExponentOf(v, static_cast<double>(scale));
      }
      CHECK(wrong == 0);
    }
    CHECK(cuda::BinOf(0, 5) == cuda::LaunchBins::kZeros);
    CHECK(cuda::BinOf(0x7f800000u, 5) == cuda::LaunchBins::kInf);
    CHECK(cuda::BinOf(0x7fffffffu, 5) == cuda::LaunchBins::kNan);
    for (const float none : {0.0f, -1.0f, std::numeric_limits<float>::infinity(), std::nanf("")})
      CHECK((Split(none).mantissa == 0 && Split(none).exponent == 0));
  }
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("rounding points: every format, values of all kinds") {
    for (const Kind& kind : AllKinds()) {
      const Values values = AllValues(kind.format, 1);
      CheckPoint(kind, Cases()[0], values, 7, static_cast<int>(values.size() / 7));
    }
  }

  TEST_CASE("rounding points: counts, edges, bins and random numbers") {
    for (const Kind& kind : AllKinds()) {
      const Values values = Spread(kind.format, 20000, 1);
      for (const Case& c : Cases()) CheckPoint(kind, c, values, 1000, 17);
    }
  }

  TEST_CASE("rounding points: scales of the tensor's own") {
    for (const Kind& kind : AllKinds())
      if (kind.storage == Storage::kF32)
        for (Case c : Cases()) {
          c.scale = 13;
          CheckPoint(kind, c, Spread(kind.format, 6000, 2), 100, 60);
        }
    for (const float scale : {0x1p127f, 0x1.8p120f, 0x1p-100f, 0x1p-140f}) {
      Case far{"scale beyond fp32"};
      far.scale = scale, far.bins = true;
      for (const NumberFormat& format : {kBf16, kFp8E4M3, kFp6E3M2})
        CheckPoint({FormatName(format), format, Storage::kF32}, far, AllValues(format, 5), 100, 60);
    }
    Case one{"scale 1"};
    one.scale = 1;
    CheckPoint({"fp8_e4m3 in fp32", kFp8E4M3, Storage::kF32}, one, Normal(5000, 9, 3), 50, 99);
  }

  TEST_CASE("rounding points: sizes from one value to many blocks") {
    for (const std::size_t n : {1, 3, 4, 5, 255, 1024, 1025, 4099, 70001, 1100000})
      for (const Kind& kind : MainKinds()) {
        Values values = Spread(kFp16, n, n);
        values[0] = 65504;
        CheckPoint(kind, Cases()[4], values, 1, static_cast<int>(n));
      }
  }

  TEST_CASE("moments: of what is stored, whether counted or not") {
    for (const Kind& kind : AllKinds()) {
      if (!kind.format.is_signed) continue;
      for (const bool all : {true, false}) {
        CheckMoments(kind, Normal(9000, 0.3, 5), all);
        CheckMoments(kind, Values(9000, -1.0f), all);
        CheckMoments(kind, Values(100, 0.0f), all);
      }
    }
  }
}

}  // namespace ada::backend::test
