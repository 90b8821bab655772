// All instruction sets give the same bits: functions of values, products and sums by channel, norms
// of groups. Whether the bits are right is for the other tests.
#include <doctest/doctest.h>

#include "backend/cpu/value_kernels.h"
#include "backend/isa_record.h"

namespace ada::backend::test {
namespace {

const Style kPlain = {MainKinds()[0], false, 1};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("sets agree: values made one by one, of one input and of two") {
    ADA_NEEDS_TWO_SETS();
    for (const std::size_t n : {1, 7, 16, 33, 50000})
      for (const bool wild : {false, true}) {
        CAPTURE(n);
        CAPTURE(wild);
        CHECK(Disagreement([&](const Kernels& k, Record& record) {
                const auto fill = [&]<class Maker>(cpu::FillKernel<Maker> kernel) {
                  if constexpr (Maker::kMakes == Makes::kEach) {
                    Values at = Input(kPlain, n, 1, wild), dy = Input(kPlain, n, 2, false);
                    for (std::size_t i = 0; i < n; i += 2) at[i] *= 8;
                    Values& out = InputsOf<Maker>() == 2 ? dy : at;
                    cpu::FillArgs a;
                    a.values = Length(n), a.out = out.data(), a.second = at.data();
                    kernel(Maker(), a);
                    record.Add(out);
                  }
                };
                std::apply(
                    [&](const auto&... layers) {
                      (fill(layers.y), ...), (fill(layers.dx), ...), (fill(layers.dw), ...);
                    },
                    cpu::ValueKernelsOf(k));
              }) == -1);
      }
  }

  TEST_CASE("sets agree: products and sums by channel") {
    ADA_NEEDS_TWO_SETS();
    for (const Pixels p : {Pixels{3, 5}, {40, 16}, {259, 19}, {64, 96}})
      for (const bool wild : {false, true})
        CHECK(Disagreement([&](const Kernels& k, Record& record) {
                const Values a = Input(kPlain, p.n(), 1, wild), b = Input(kPlain, p.n(), 2, wild);
                Values out = a, sums(static_cast<std::size_t>(p.channels));
                k.multiply(out.data(), b.data(), out.data(), Length(p.n()));
                record.Add(out);
                k.multiply_channels(out.data(), b.data(), p.pixels, p.channels, out.data());
                record.Add(out);
                for (const float* second : {b.data(), static_cast<const float*>(nullptr)}) {
                  k.strip_sums(a.data(), second, p.pixels, p.channels, sums.data());
                  record.Add(sums);
                }
              }) == -1);
  }

  TEST_CASE("sets agree: norms of groups") {
    ADA_NEEDS_TWO_SETS();
    for (const Pixels p : {Pixels{3, 5}, {40, 16}, {259, 19}, {64, 96}})
      for (const bool by_pixel : {false, true})
        for (const bool wild : {false, true})
          CHECK(Disagreement([&](const Kernels& k, Record& record) {
                  Values x = Input(kPlain, p.n(), 1, wild), hat = x;
                  const Values dy = Input(kPlain, p.n(), 2, false), gamma = Normal(p.n(), 1, 3);
                  Values mean(p.n()), inverse(p.n()), y = x;
                  cpu::GroupedNormArgs a;
                  a.step = p.channels, a.eps = 1e-5, a.gamma = gamma.data(), a.beta = dy.data();
                  a.groups = by_pixel ? p.pixels : 1, a.runs = by_pixel ? 1 : p.pixels;
                  a.run = p.channels, a.mean = mean.data(), a.inverse = inverse.data();
                  a.x = y.data(), a.out = y.data();
                  k.grouped_norm(a);
                  a.x = a.out = x.data(), a.dy = dy.data();
                  k.grouped_norm_backward(a, hat.data());
                  for (const Values* v : {&y, &x, &hat, &mean, &inverse}) record.Add(*v);
                }) == -1);
  }
}

}  // namespace ada::backend::test
