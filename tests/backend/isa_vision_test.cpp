// All instruction sets give the same bits: unpooling, local response normalization, norms over
// lengths, softmax of rows. Whether the bits are right is for the other tests.
#include <doctest/doctest.h>

#include "backend/isa_record.h"

namespace ada::backend::test {
namespace {

const Style kWide = {MainKinds()[0], false, 1};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("sets agree: unpooling") {
    ADA_NEEDS_TWO_SETS();
    for (const Kind& plain : MainKinds())
      for (const std::int64_t c : {3, 16, 37})
        for (const std::int64_t more : {0, 1})
          CHECK(Disagreement([&](const Kernels& k, Record& record) {
                  const Style kind = {plain, false, 1};
                  cpu::UnpoolArgs a;
                  a.images = 2, a.c = c, a.small_h = 4 + more, a.small_w = 3;
                  a.pooled_h = 4, a.pooled_w = 3 + more, a.large_h = 7, a.large_w = 6;
                  a.kernel_h = a.kernel_w = a.stride_h = a.stride_w = 2;
                  const auto small = static_cast<std::size_t>(2 * a.small_h * a.small_w * c);
                  const auto large = static_cast<std::size_t>(2 * 7 * 6 * c);
                  std::vector<std::uint16_t> positions(
                      static_cast<std::size_t>(2 * a.pooled_h * a.pooled_w * c));
                  for (std::size_t i = 0; i < positions.size(); ++i)
                    positions[i] = static_cast<std::uint16_t>(i * 5 % 4);
                  a.positions = positions.data();
                  Memory x(kind.storage, Input(kind, small, 1, true)), y(kind.storage, large);
                  Memory dy(kind.storage, Input(kind, large, 2, true)), dx(kind.storage, small);
                  a.small = x.piece(), a.large = y.piece();
                  k.max_unpool(a);
                  a.small = dx.piece(), a.large = dy.piece();
                  k.max_unpool_backward(a);
                  record.Add(y), record.Add(dx);
                }) == -1);
  }

  TEST_CASE("sets agree: local response normalisation, norms over lengths, softmax of rows") {
    ADA_NEEDS_TWO_SETS();
    for (const Pixels p : {Pixels{3, 5}, {40, 16}, {259, 19}, {64, 96}, {50, 1}})
      for (const bool wild : {false, true})
        CHECK(Disagreement([&](const Kernels& k, Record& record) {
                const Values x = Input(kWide, p.n(), 1, wild), dy = Input(kWide, p.n(), 2, false);
                Values y = x, dx = dy, hat = x;
                std::vector<double> work(64 * static_cast<std::size_t>(p.channels));
                cpu::LrnArgs a;
                a.pixels = p.pixels, a.channels = p.channels, a.size = 5;
                a.factors = {0.1, 0.75, 1}, a.work = work.data();
                a.x = a.out = y.data();
                k.lrn(a);
                a.x = x.data(), a.dy = a.out = dx.data();
                k.lrn_backward(a);
                record.Add(y), record.Add(dx);

                Values lengths(static_cast<std::size_t>(p.pixels)), inverse(lengths);
                cpu::GroupedNormArgs u;
                u.by_length = true, u.step = u.run = p.channels, u.groups = p.pixels;
                u.eps = 1e-5, u.gamma = dy.data();
                u.mean = lengths.data(), u.inverse = inverse.data();
                y = x, dx = dy;
                u.x = x.data(), u.out = y.data();
                k.grouped_norm(u);
                u.dy = u.out = dx.data();
                k.grouped_norm_backward(u, hat.data());
                for (const Values* v : {&y, &dx, &hat, &lengths, &inverse}) record.Add(*v);

                std::vector<std::int32_t> labels, better(static_cast<std::size_t>(p.pixels));
                for (std::int64_t i = 0; i < p.pixels; ++i)
                  labels.push_back(static_cast<std::int32_t>(i % (p.channels + 1)) - 1);
                std::vector<double> sums(better.size()),
                    factors(static_cast<std::size_t>(p.channels), 0.125);
                cpu::SoftmaxArgs s;
                s.z = x.data(), s.rows = p.pixels, s.classes = p.channels;
                s.labels = labels.data();
                Values tile(16 * static_cast<std::size_t>(p.channels));
                s.work = tile.data(), s.log_sums = sums.data(), s.better = better.data();
                s.factors = factors.data(), s.gradient = y.data();
                k.softmax_sums(s);
                k.softmax_gradient(s);
                record.Add(y), record.Add(Values(better.begin(), better.end()));
                record.Add(Values(sums.begin(), sums.end()));
              }) == -1);
  }
}

}  // namespace ada::backend::test
