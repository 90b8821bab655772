// Moments of which only the size is wanted, against all of them; batch norm's backward pass over
// wide tensors, whose columns are walked together, and in place.
#include <doctest/doctest.h>

#include "backend/isa_record.h"

namespace ada::backend::test {
namespace {

// What a rule that asks for the size alone reads.
struct Size {
  double square = 0, largest = 0;
  explicit Size(const BlockStats& s)
      : square(s.rounded_square),
        largest(std::max(std::fabs(static_cast<double>(s.rounded_min)),
                         std::fabs(static_cast<double>(s.rounded_max)))) {}
  bool operator==(const Size& other) const {
    if (std::isnan(square)) return std::isnan(other.square);
    return square == other.square && largest == other.largest;
  }
};
cpu::Rounding Moments(const Style& style, BlockStats* stats, bool size_only, bool count = false) {
  cpu::Rounding rounding = Rounds(style, stats);
  rounding.count = count, rounding.size_only = size_only;
  return rounding;
}
// What was counted, without moments.
Record CountsOf(BlockStats s) {
  s.rounded_sum = s.rounded_square = s.rounded_min = s.rounded_max = 0, s.rounded_min_bits = 0;
  Record record;
  record.Add(s);
  return record;
}

struct Backward {
  Backward(const Style& style, const Pixels& p, bool wild)
      : style_(style),
        p_(p),
        x(style.storage, Input(style, p.n(), 1, wild)),
        dy(style.storage, Input(style, p.n(), 2, wild)) {
    for (int k = 0; k < 4; ++k)
      of_channel[k] = Normal(static_cast<std::size_t>(p.channels), 1, 3 + k);
  }
  // Into `dx`, which may be dy.
  BlockStats Run(const Kernels& kernels, Memory& dx, bool size_only) {
    BlockStats stats;
    cpu::BatchNormBackwardArgs a;
    a.x = x.piece(), a.dy = dy.piece(), a.dx = dx.piece();
    a.pixels = p_.pixels, a.channels = p_.channels;
    a.mean = of_channel[0].data(), a.factor = of_channel[1].data();
    a.mean_dy = of_channel[2].data(), a.slope = of_channel[3].data();
    a.dx_rounding = Moments(style_, &stats, size_only);
    kernels.batch_norm_backward(a);
    return stats;
  }
  Style style_;
  Pixels p_;
  Memory x, dy;
  Values of_channel[4];
};
const Pixels kWide[] = {{3, 48}, {259, 112}, {600, 32}, {17000, 33}};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("size only, counted or not: sum of squares and largest are those of all moments") {
    for (const Kernels* kernels : KernelSets())
      ForFlat([&](const Style& style, std::size_t n, bool wild) {
        CAPTURE(kernels->name);
        const Values in = wild ? RandomBits(n, n) : Spread(style.format, n, n);
        Memory out(style.storage, n);
        BlockStats all, size;
        kernels->round(in.data(), 0.75f, out.piece(), Length(n), Moments(style, &all, false));
        kernels->inspect(out.piece(), Length(n), Moments(style, &size, true));
        CHECK(Size(all) == Size(size));
        kernels->round(in.data(), 0.75f, out.piece(), Length(n), Moments(style, &size, true));
        CHECK(Size(all) == Size(size));
        CHECK((all.max_bits == size.max_bits || all.max_bits > 0x7f800000u));
        kernels->round(in.data(), 0.75f, out.piece(), Length(n), Moments(style, &size, true, true));
        CHECK(Size(all) == Size(size));
        kernels->round(in.data(), 0.75f, out.piece(), Length(n), Moments(style, &all, false, true));
        const Record of_all = CountsOf(all), of_size = CountsOf(size);
        CHECK(std::memcmp(of_all.values.data(), of_size.values.data(),
                          of_all.values.size() * sizeof(double)) == 0);
      });
  }

  TEST_CASE("batch norm backward: wide tensors, in place or not, any moments, every set") {
    for (const Style& style : AllStyles())
      for (const Pixels& p : kWide)
        for (const bool wild : {false, true}) {
          if (style.stochastic || style.scale != 1) continue;
          if (p.pixels > 1000 && (wild || style.storage != Storage::kF16)) continue;
          CAPTURE(style.name);
          CAPTURE(p.pixels);
          CAPTURE(p.channels);
          CAPTURE(wild);
          CHECK(Disagreement([&](const Kernels& k, Record& record) {
                  Backward run(style, p, wild);
                  Memory apart(style.storage, p.n());
                  const BlockStats all = run.Run(k, apart, false), size = run.Run(k, apart, true),
                                   again = run.Run(k, run.dy, true);
                  CHECK(Size(all) == Size(size));
                  CHECK(Size(all) == Size(again));
                  CHECK(FirstDifference(run.dy.Get(), apart.Get()) == -1);
                  record.Add(apart), record.Add(all);
                }) == -1);
        }
  }
}

}  // namespace ada::backend::test
