// Inputs of products whose sums are exact in fp32 in any order: integers times powers of two, so
// few and so small that every partial sum fits in 24 bits. Whatever adds them, in tiles or not,
// must come to the same bits. Winograd's algorithm takes sums of 4 inputs and of 9 weights divided
// by 4 as factors: six bits more.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "backend/matmul_cases.h"

namespace ada::backend::test {

enum class Exact32 {
  kUniform,  // one exponent a tensor: y, dx, dw, db are exact
  kSpread,   // one an image, over all of the format and beyond: y and dx are exact
  kSparse,   // two values an image, of all the bits that formats have: y, dx, dw, db are exact
};
inline std::string Name(Exact32 kind) {
  return kind == Exact32::kUniform ? "uniform" : kind == Exact32::kSpread ? "spread" : "sparse";
}

// Bits of the integers, by role.
struct ExactBits {
  int x, w, dy;
};
// At most what the formats hold and what leaves every sum within 2^24.
inline ExactBits BitsFor(const MatmulCase& c, const MatmulFormats& f, Exact32 kind,
                         std::int64_t rows) {
  const auto held = [](const NumberFormat& format) {
    return std::min(format.mantissa_bits + 1, 11);
  };
  const auto log2 = [](std::int64_t n) { return static_cast<int>(std::ceil(std::log2(n))); };
  const bool sparse = kind == Exact32::kSparse, any_dw = kind == Exact32::kSpread;
  const std::int64_t kernel = std::int64_t{c.kernel[0]} * c.kernel[1], group_out = c.out / c.groups;
  const int more = MayUseWinograd(c) ? 6 : 0;
  const int y = more + log2(sparse ? 3 : kernel * c.w().c + 1),
            dx = more + log2(sparse ? 2 : kernel * group_out),
            dw = more + log2(sparse ? 2 * rows : rows * c.y().h * c.y().w);
  ExactBits b = {held(f.x), held(f.w), held(f.dy)};
  for (int turn = 0;; ++turn) {
    const bool y_ok = b.x + b.w + y <= 24, dx_ok = b.w + b.dy + dx <= 24,
               dw_ok = any_dw || b.x + b.dy + dw <= 24;
    if (y_ok && dx_ok && dw_ok) return b;
    int* shrinks = !y_ok    ? (turn % 2 ? &b.x : &b.w)
                   : !dx_ok ? (turn % 2 ? &b.w : &b.dy)
                            : (turn % 2 ? &b.dy : &b.x);
    *shrinks = std::max(1, *shrinks - 1);
    REQUIRE(turn < 100);
  }
}

// Exponents e for which integers of `bits` bits times 2^e lie in `format`; wide formats: around 1.
struct Exponents {
  Exponents(const NumberFormat& format, int bits)
      : low(std::max(-30, std::ilogb(format.smallest_subnormal()))),
        high(std::min(20, std::ilogb(format.largest()) - bits)) {}
  int Pick(RandomStream& random) const {
    return low + static_cast<int>(random.Below(static_cast<std::uint32_t>(high - low + 1)));
  }
  int low, high;
};

class ExactInputs {
 public:
  ExactInputs(const MatmulCase& c, const MatmulFormats& f, Exact32 kind, std::int64_t rows,
              std::uint64_t seed)
      : random_(seed, StreamId("exact")), bits(BitsFor(c, f, kind, rows)) {
    const Exponents ex(f.x, bits.x), ew(f.w, bits.w), ed(f.dy, bits.dy);
    const int w_exponent = std::clamp(ew.Pick(random_), -12, 2);
    w = Integers(c.w().numel(), bits.w, std::clamp(w_exponent, ew.low, ew.high));
    const int x_exponent = ex.Pick(random_), dy_exponent = ed.Pick(random_);
    for (std::int64_t n = 0; n < c.x.n; ++n) {
      const bool spread = kind == Exact32::kSpread;
      Append(x, Image(c.x.per_image(), bits.x, spread ? ex.Pick(random_) : x_exponent, kind));
      Append(dy, Image(c.y().per_image(), bits.dy, spread ? ed.Pick(random_) : dy_exponent, kind));
    }
    b = Integers(c.out, kind == Exact32::kSpread ? 0 : std::min(bits.x + bits.w, 6),
                 x_exponent + w_exponent);
    Fit(x, f.x), Fit(w, f.w), Fit(dy, f.dy);
  }

 private:
  RandomStream random_;

 public:
  const ExactBits bits;
  Values x, w, b, dy;

 private:
  static void Append(Values& to, const Values& from) {
    to.insert(to.end(), from.begin(), from.end());
  }
  static void Fit(const Values& values, const NumberFormat& format) {
    REQUIRE(std::all_of(values.begin(), values.end(),
                        [&](float v) { return RoundTo(format, v) == v; }));
  }
  Values Integers(std::int64_t n, int bits, int exponent) {
    Values values(static_cast<std::size_t>(n));
    for (float& v : values) {
      const auto k = static_cast<int>(random_.Below(2u << bits)) - (1 << bits);
      v = std::ldexp(static_cast<float>(std::clamp(k, 1 - (1 << bits), (1 << bits) - 1)), exponent);
      v += 0.0f;  // no negative zeros
    }
    return values;
  }
  Values Image(std::int64_t n, int bits, int exponent, Exact32 kind) {
    if (kind != Exact32::kSparse) return Integers(n, bits, exponent);
    Values image(static_cast<std::size_t>(n));
    for (const float v : Integers(2, bits, exponent))
      image[random_.Below(static_cast<std::uint32_t>(n))] = v;
    return image;
  }
};

// A layer with exact inputs in place, its scale S and alpha powers of two.
struct ExactBench : MatmulBench {
  ExactBench(Bench& bench, const MatmulCase& c, const MatmulFormats& f, const ExactInputs& in,
             float scale, double alpha)
      : MatmulBench(bench, c, f, scale, alpha) {
    Bench::Set(spec.x, in.x);
    Bench::Set(spec.w, in.w);
    Bench::Set(spec.dy.tensor, in.dy);
    if (c.bias) Bench::Set(spec.b, in.b);
  }
};

// Sums times a power of two, which must be fp32 values.
inline Values ExactValues(const Sums& sums, double factor = 1) {
  Values values;
  values.reserve(sums.size());
  bool exact = true;
  for (const Exact& sum : sums) {
    values.push_back(static_cast<float>(sum.value * factor));
    exact = exact && static_cast<double>(values.back()) == sum.value * factor;
  }
  REQUIRE(exact);
  return values;
}

// Signs of zeros are compared where something was rounded to zero; an exact zero has either.
inline std::int64_t FirstWrong(const Values& got, const Values& want, const Values& before) {
  if (got.size() < want.size()) return 0;
  for (std::size_t i = 0; i < want.size(); ++i)
    if (!ada::test::Same(got[i], want[i]) && !(before[i] == 0 && got[i] == 0))
      return static_cast<std::int64_t>(i);
  return -1;
}

}  // namespace ada::backend::test
