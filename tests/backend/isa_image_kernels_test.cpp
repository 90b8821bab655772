// All instruction sets give the same bits: batch norm and pooling. Whether the bits are right is
// for the other tests.
#include <doctest/doctest.h>

#include "backend/isa_record.h"

namespace ada::backend::test {

TEST_SUITE("cpu") {
  TEST_CASE("sets agree: batch norm forward, with all that may follow it") {
    ADA_NEEDS_TWO_SETS();
    ForPixels([](const Style& kind, const Pixels& p, bool wild) {
      const Values scale = Normal(p.n(), 1, 3);
      CHECK(Disagreement([&](const Kernels& k, Record& record) {
              Memory x(kind.storage, Input(kind, p.n(), 1, wild));
              Memory addend(kind.storage, Input(kind, p.n(), 2, wild));
              Values mean(static_cast<std::size_t>(p.channels)), m2(mean);
              k.channel_moments(x.piece(), p.pixels, p.channels, mean.data(), m2.data());
              record.Add(mean), record.Add(m2);
              for (const int variant : {0, 1, 2, 3}) {
                Memory out(kind.storage, p.n());
                BlockStats y, sum;
                cpu::BatchNormForwardArgs a;
                a.x = x.piece(), a.out = out.piece();
                if (variant & 1) a.addend = addend.piece();
                a.relu = variant & 2;
                a.pixels = p.pixels, a.channels = p.channels;
                a.mean = mean.data(), a.factor = scale.data(), a.beta = scale.data();
                a.y = Rounds(kind, &y, false), a.sum = Rounds(kind, &sum, false);
                k.batch_norm_forward(a);
                record.Add(out), record.Add(y);
                if (variant & 1) record.Add(sum);
              }
            }) == -1);
    });
  }

  TEST_CASE("sets agree: batch norm backward") {
    ADA_NEEDS_TWO_SETS();
    ForPixels([](const Style& kind, const Pixels& p, bool wild) {
      const Values mean = Normal(p.n(), 1, 4), inverse = Normal(p.n(), 1, 5);
      CHECK(Disagreement([&](const Kernels& k, Record& record) {
              for (const bool relu : {false, true}) {
                Memory x(kind.storage, Input(kind, p.n(), 1, wild)), dx(kind.storage, p.n());
                Memory dy(kind.storage, Input(kind, p.n(), 2, wild));
                Memory out(kind.storage, Input(kind, p.n(), 3, false));
                Values sum_dy(static_cast<std::size_t>(p.channels)), sum_product(sum_dy);
                cpu::BatchNormSumsArgs s;
                s.x = x.piece(), s.dy = dy.piece();
                if (relu) s.out = out.piece();
                s.pixels = p.pixels, s.channels = p.channels;
                s.mean = mean.data(), s.inverse = inverse.data();
                s.sum_dy = sum_dy.data(), s.sum_dy_xhat = sum_product.data();
                k.batch_norm_sums(s);
                cpu::BatchNormBackwardArgs b;
                BlockStats stats;
                b.x = x.piece(), b.dy = dy.piece(), b.dx = dx.piece();
                b.pixels = p.pixels, b.channels = p.channels;
                b.mean = mean.data(), b.factor = inverse.data();
                b.mean_dy = sum_dy.data(), b.slope = sum_product.data();
                b.dx_rounding = Rounds(kind, &stats);
                k.batch_norm_backward(b);
                record.Add(dy), record.Add(sum_dy), record.Add(sum_product);
                record.Add(dx), record.Add(stats);
              }
            }) == -1);
    });
  }

  TEST_CASE("sets agree: pooling, overlapping and padded") {
    ADA_NEEDS_TWO_SETS();
    struct Window {
      int kernel, stride, padding;
    };
    for (const Style& kind : AllStyles())
      for (const Window w : {Window{2, 2, 0}, {3, 2, 1}, {3, 1, 1}})
        for (const std::int64_t c : {3, 16, 37})
          for (const bool wild : {false, true}) {
            CAPTURE(kind.name);
            CAPTURE(c);
            cpu::PoolArgs a;
            a.images = 2, a.h = 7, a.w = 6, a.c = c;
            a.kernel_h = a.kernel_w = w.kernel, a.stride_h = a.stride_w = w.stride;
            a.pad_h = a.pad_w = w.padding;
            a.out_h = (a.h + 2 * w.padding - w.kernel) / w.stride + 1;
            a.out_w = (a.w + 2 * w.padding - w.kernel) / w.stride + 1;
            const auto in = static_cast<std::size_t>(a.images * a.h * a.w * c);
            const auto out = static_cast<std::size_t>(a.images * a.out_h * a.out_w * c);
            CHECK(Disagreement([&](const Kernels& k, Record& record) {
                    Memory x(kind.storage, Input(kind, in, 1, wild)), y(kind.storage, out);
                    Memory dy(kind.storage, Input(kind, out, 2, wild)), dx(kind.storage, in);
                    std::vector<std::remove_pointer_t<decltype(a.index)>> index(out);
                    Values work(in);
                    BlockStats stats[3];
                    cpu::PoolArgs p = a;
                    p.index = index.data(), p.work = work.data();
                    p.x = x.piece(), p.y = y.piece();
                    k.max_pool(p);
                    record.Add(y);
                    p.rounding = Rounds(kind, &stats[0]);
                    k.avg_pool(p);
                    record.Add(y);
                    p.x = dx.piece(), p.y = dy.piece(), p.rounding.stats = &stats[1];
                    k.max_pool_backward(p);
                    record.Add(dx), record.Add(Values(index.begin(), index.end()));
                    p.rounding.stats = &stats[2];
                    k.avg_pool_backward(p);
                    record.Add(dx);
                    for (const BlockStats& s : stats) record.Add(s);
                  }) == -1);
          }
  }
}

}  // namespace ada::backend::test
