// The backend under test (test_backend.h) with tensors, gradients and values at hand, for tests of
// single ops; and how their results are compared with a reference in double.
#pragma once
#include <doctest/doctest.h>

#include <deque>
#include <limits>
#include <memory>

#include "backend/test_backend.h"
#include "backend/values.h"

namespace ada::backend::test {

// Tensors live as long as the bench; gradients come with scale, statistics and moments.
class Bench {
 public:
  explicit Bench(int threads = 2) : backend_(MakeTestBackend(threads)) {}
  Backend& operator*() const { return *backend_; }
  Backend* operator->() const { return backend_.get(); }

  Tensor Make(const Shape& shape, const NumberFormat& format) {
    Tensor t{shape, format, StorageFor(format), nullptr};
    t.data = backend_->Allocate(t.bytes());
    return t;
  }
  // The same in fp32 storage, as values with a per-tensor scale need it.
  Tensor MakeF32(const Shape& shape, const NumberFormat& format) {
    Tensor t = Make(shape, kFp32);
    t.format = format;
    return t;
  }
  // Values are rounded to the format.
  Tensor Make(const Shape& shape, const NumberFormat& format, const Values& values) {
    Tensor t = Make(shape, format);
    Set(t, values);
    return t;
  }
  Tensor Vector(const Values& values) {
    return Make({1, 1, 1, static_cast<std::int64_t>(values.size())}, kFp32, values);
  }
  Gradient MakeGradient(const Shape& shape, const NumberFormat& format, float scale = 1) {
    Gradient g;
    g.tensor = Make(shape, format);
    g.scale = &scales_.emplace_back(scale);
    g.stats = &stats_.emplace_back();
    g.moments = &moments_.emplace_back();
    return g;
  }
  Gradient MakeGradient(const Shape& shape, const NumberFormat& format, const Values& values,
                        float scale) {
    const Gradient g = MakeGradient(shape, format, scale);
    Set(g.tensor, values);
    return g;
  }
  TensorStats* Stats() { return &stats_.emplace_back(); }

  static void Set(const Tensor& t, const Values& values) {
    REQUIRE(static_cast<std::int64_t>(values.size()) == t.shape.numel());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float v = RoundTo(t.format, values[i]);
      const std::uint16_t code = t.storage == Storage::kBF16 ? EncodeBf16(v) : EncodeFp16(v);
      if (t.storage == Storage::kF32)
        t.f32()[i] = v;
      else
        std::memcpy(t.data + 2 * i, &code, 2);
    }
  }
  static Values Get(const Tensor& t) {
    Values values(static_cast<std::size_t>(t.shape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint16_t code;
      std::memcpy(&code, t.data + 2 * i, 2);
      values[i] = t.storage == Storage::kF32   ? t.f32()[i]
                  : t.storage == Storage::kF16 ? DecodeFp16(code)
                                               : DecodeBf16(code);
    }
    return values;
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::deque<float> scales_;
  std::deque<TensorStats> stats_;
  std::deque<TensorMoments> moments_;
};

inline Pass MakePass(int rows) {
  Pass pass;
  pass.rows = rows;
  pass.loss_terms = rows;
  pass.count = true;
  return pass;
}

// A sum in double and the magnitudes of its terms, from which its fp32 error is bounded.
struct Exact {
  double value = 0, magnitude = 0;
  void Add(double term) {
    value += term;
    magnitude += std::fabs(term);
  }
  Exact& operator*=(double factor) {
    value *= factor;
    magnitude *= std::fabs(factor);
    return *this;
  }
};
using Sums = std::vector<Exact>;

// The values that a correct op may store: the roundings of all fp32 values within the error bound.
// Without a tie within the bound that is one value, otherwise the two next to the tie.
struct Range {
  float low, high;
  bool Holds(float x) const { return x >= low && x <= high; }
};
inline Range Rounded(const NumberFormat& format, double low, double high) {
  const float inf = std::numeric_limits<float>::infinity();
  return {RoundTo(format, std::nextafter(static_cast<float>(low), -inf)),
          RoundTo(format, std::nextafter(static_cast<float>(high), inf))};
}
// The order of fp32 additions is the library's: each rounds once, 2^-24 of a partial sum that is at
// most the magnitudes' sum, errors add up like a random walk; 2^-22 of the sum of magnitudes held
// in practice for sums of some thousand terms.
inline constexpr double kSumError = 0x1p-22;
inline Range Rounded(const NumberFormat& format, const Exact& sum, double error = kSumError) {
  return Rounded(format, sum.value - error * sum.magnitude, sum.value + error * sum.magnitude);
}

// Checks the first want.size() values of `t`; values after them must still be `untouched`.
inline void CheckTensor(const Tensor& t, const Sums& want, double error = kSumError,
                        float untouched = 0) {
  const Values got = Bench::Get(t);
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = got.size(); i-- > 0;) {
    const bool good =
        i < want.size() ? Rounded(t.format, want[i], error).Holds(got[i]) : got[i] == untouched;
    if (!good) ++wrong, first = i;
  }
  CHECK_MESSAGE(wrong == 0, wrong << " of " << got.size() << " wrong, first [" << first
                                  << "] = " << got[first] << ", wanted "
                                  << (first < want.size() ? want[first].value : untouched));
}
inline void CheckEqual(const Tensor& t, const Values& want) {
  const Values got = Bench::Get(t);
  const std::int64_t at = FirstDifference(got, want);
  const auto i = static_cast<std::size_t>(std::max<std::int64_t>(at, 0));
  CHECK_MESSAGE(at == -1, "[" << i << "] = " << got[i] << ", wanted " << want[i]);
}

// The loss of logits; Spec: ClassLossSpec or PixelLossSpec. `spec` brings what else it says.
template <class Spec>
struct LossBench {
  LossBench(Bench& bench, const Shape& shape, const NumberFormat& format, const Values& logits,
            Spec with)
      : spec(std::move(with)) {
    spec.logits = bench.Make(shape, format, logits);
    spec.dlogits = bench.MakeGradient(shape, format);
    op = bench->MakeLoss(spec);
  }
  LossResult Run(const std::vector<std::int32_t>& labels, const Pass& pass) {
    op->SetTargets({labels.data()}, pass.rows);
    op->Forward(pass);
    op->Backward(pass);
    return op->Result();
  }
  Spec spec;
  std::unique_ptr<LossOp> op;
};

}  // namespace ada::backend::test
