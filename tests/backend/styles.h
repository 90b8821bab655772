// Rounding styles in tests: what a tensor of a style must hold, by the scalar definitions.
#pragma once
#include <string>
#include <utility>

#include "backend/op_bench.h"

namespace ada::backend::test {

inline constexpr std::uint64_t kSeed = 0x123456789abcdefull, kDraw = 42;

inline Pass Drawing(int rows) {
  Pass pass = MakePass(rows);
  pass.seed = kSeed, pass.draw = kDraw;
  return pass;
}
// A style by itself and the scale that it may point to.
struct Style {
  explicit Style(bool stochastic, std::uint64_t stream = 0, float scale = 0) {
    style.stochastic = stochastic, style.stream = stream;
    per_tensor_scale.scale = scale;
    if (scale != 0) style.per_tensor_scale = &per_tensor_scale;
  }
  Style(const Style&) = delete;
  // What a tensor of this style holds, of these values before rounding.
  Values Round(const NumberFormat& format, const Values& before) const {
    const float scale = style.per_tensor_scale != nullptr ? per_tensor_scale.scale : 1;
    Values after;
    for (std::size_t i = 0; i < before.size(); ++i) {
      const float x = before[i] * scale;
      const std::uint32_t word = Philox(kSeed ^ style.stream, kDraw, i / 4)[i % 4];
      after.push_back(
          (style.stochastic ? RoundStochastically(format, x, word) : RoundTo(format, x)) / scale);
    }
    return after;
  }
  scaling::TensorScaler per_tensor_scale;
  RoundingStyle style;
};

inline Values First(Values values, int rows, const Shape& shape) {
  values.resize(static_cast<std::size_t>(rows * shape.per_image()));
  return values;
}
inline void CheckRounded(const char* what, const Tensor& t, const Style& style, Values before,
                         int rows) {
  CAPTURE(what);
  Values want = style.Round(t.format, First(std::move(before), rows, t.shape));
  want.resize(static_cast<std::size_t>(t.shape.numel()));
  CheckEqual(t, want);
}

// A tensor for values of a style: scaled ones lie in fp32.
inline Tensor MakeFor(Bench& bench, const Shape& shape, const NumberFormat& format,
                      const Style& style) {
  return style.style.per_tensor_scale != nullptr ? bench.MakeF32(shape, format)
                                                 : bench.Make(shape, format);
}
inline Gradient GradientFor(Bench& bench, const Shape& shape, const NumberFormat& format,
                            const Style& style) {
  Gradient g = bench.MakeGradient(shape, format);
  g.tensor = MakeFor(bench, shape, format, style);
  g.style = style.style;
  return g;
}

}  // namespace ada::backend::test
