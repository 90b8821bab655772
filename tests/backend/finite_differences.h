// Gradients against finite differences of the forward pass they belong to, in fp32. The loss is the
// sum of y times random numbers, in double; gradients come with a scale S that must cancel.
//
// Central differences with step h = 1/64: an fp32 forward pass errs by about 2^-22 of the values
// near the one that moves, which the division by 2h amplifies to 1e-5 of them; layers that are not
// linear (batch norm, loss) add h^2 times a third derivative. 2e-3 of the largest gradient (plus
// 2e-3 absolute) covers both; a wrong factor, sign or index is far outside.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "backend/values.h"

namespace ada::backend::test {

inline constexpr float kStep = 0x1p-6f;

inline Values Random(const Shape& shape, std::uint64_t seed) {
  return Normal(static_cast<std::size_t>(shape.numel()), 1, seed);
}
// Place i of a permutation of n < 7919 (a prime) that leaves no row or channel out.
inline std::size_t Scattered(std::size_t i, std::size_t n) { return i * 7919 % n; }
// Distinct values, well apart: neither a maximum nor a sign changes within a step.
inline Values Apart(const Shape& shape) {
  Values values(static_cast<std::size_t>(shape.numel()));
  const std::size_t middle = values.size() / 2;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t place = Scattered(i, values.size());
    values[i] = 0.0625f * (static_cast<float>(place) - static_cast<float>(middle) + 0.5f);
  }
  return values;
}
inline Values Times(Values values, float factor) {
  for (float& v : values) v *= factor;
  return values;
}

// A loss of what a bench's tensors hold, and how many values of a tensor are moved at most.
template <class Bench>
struct Differences {
  Bench& bench;
  std::function<double()> loss;
  std::size_t most;

  // d loss / d t by central differences against gradient / scale.
  void Check(const char* what, const Tensor& t, const Tensor& gradient, float scale) const {
    CAPTURE(what);
    Values values = bench.Get(t);
    const Values want = Times(bench.Get(gradient), 1 / scale);
    double largest = 0, worst = 0;
    for (const float g : want) largest = std::max(largest, std::fabs(static_cast<double>(g)));
    const double bound = 2e-3 * largest + 2e-3;
    std::size_t wrong = 0, at = 0;
    for (std::size_t k = 0; k < std::min(most, values.size()); ++k) {
      const std::size_t i = Scattered(k, values.size());
      const double error = std::fabs(Slope(t, values, i) - static_cast<double>(want[i]));
      if (!(error <= bound)) ++wrong, at = i, worst = error;
    }
    CHECK(largest > 0);
    CHECK_MESSAGE(wrong == 0, wrong << " are wrong, the last by " << worst << " at " << at
                                    << " beside " << want[at]);
  }

 private:
  // The slope of the loss along value i of t, which is left as it was.
  double Slope(const Tensor& t, Values& values, std::size_t i) const {
    const float old = values[i], above = old + kStep, below = old - kStep;
    const auto at = [&](float value) {
      values[i] = value;
      bench.Set(t, values);
    };
    at(above);
    const double up = loss();
    at(below);
    const double down = loss();
    at(old);
    return (up - down) / (static_cast<double>(above) - static_cast<double>(below));
  }
};

// Differences of the sum of y times `weights`, once `forward` has run.
template <class Bench, class Forward>
Differences<Bench> DifferencesOf(Bench& bench, const Tensor& y, const Values& weights,
                                 std::size_t most, Forward&& forward) {
  const auto loss = [&bench, y, weights, forward] {
    forward();
    const Values values = bench.Get(y);
    double sum = 0;
    for (std::size_t i = 0; i < weights.size(); ++i)
      sum += static_cast<double>(values[i]) * static_cast<double>(weights[i]);
    return sum;
  };
  return {bench, loss, most};
}

}  // namespace ada::backend::test
