// Kernels that look at magnitudes, and what becomes of gradients that are not finite, against plain
// loops.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "backend/isa_record.h"

namespace ada::backend::test {
namespace {

std::uint32_t MagnitudeBits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

void CountTailNaively(const Values& x, cpu::TailCounts& counts) {
  for (const float v : x) {
    const std::uint32_t bits = MagnitudeBits(v);
    counts.nonzero += bits != 0;
    counts.max_bits = std::max(counts.max_bits, bits);
    if (bits != 0 && std::isfinite(v)) ++counts.bins[bits >> 23];
  }
}
bool SameTails(const cpu::TailCounts& a, const cpu::TailCounts& b) {
  return std::equal(std::begin(a.bins), std::end(a.bins), std::begin(b.bins)) &&
         a.nonzero == b.nonzero && a.max_bits == b.max_bits;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("exponent tails: lengths, all exponents, zeros, what is not finite, several calls") {
    for (const Kernels* kernels : KernelSets())
      for (const std::size_t n : {1, 15, 16, 17, 63, 64, 65, 1000, 4097, 16384})
        for (const std::uint32_t field : {0, 1, 2, 100, 127, 254}) {
          CAPTURE(kernels->name);
          CAPTURE(n);
          CAPTURE(field);
          Values dense = Normal(n, 1e-3, n), sparse(n), edges(n);
          for (std::size_t i = 0; i < n; i += 7) sparse[i] = dense[i];
          for (std::size_t i = 0; i < n; ++i)  // on both sides of a power of two
            edges[i] = std::bit_cast<float>((field << 23) + (field == 0 ? 1 : 0) - (i % 3 == 0));
          cpu::TailCounts got, want;
          for (const Values& x : {dense, sparse, edges, RandomBits(n, n), Values(n, -0.0f)}) {
            kernels->exponent_tail(x.data(), Length(n), got);
            CountTailNaively(x, want);
          }
          CHECK(SameTails(got, want));
        }
  }

  TEST_CASE("magnitudes of channels are merged into what is there") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : MainKinds())
        for (const Pixels p : {Pixels{1, 1}, {7, 3}, {64, 16}, {300, 37}}) {
          CAPTURE(kernels->name);
          CAPTURE(kind.name);
          CAPTURE(p.channels);
          const auto channels = static_cast<std::size_t>(p.channels);
          std::vector<std::uint32_t> min(channels, 0xffffffffu), max(channels, 0);
          std::vector<std::uint32_t> want_min = min, want_max = max;
          for (const bool wild : {false, true}) {
            Memory in(kind.storage, Input(kind, p.n(), 3, wild));
            kernels->channel_magnitudes(in.piece(), p.pixels, p.channels, min.data(), max.data());
            const Values values = in.Get();
            for (std::size_t i = 0; i < values.size(); ++i) {
              const std::size_t c = i % channels;
              want_min[c] = std::min(want_min[c], MagnitudeBits(values[i]) - 1);
              want_max[c] = std::max(want_max[c], MagnitudeBits(values[i]));
            }
          }
          CHECK(min == want_min);
          for (std::size_t c = 0; c < channels; ++c) {
            const bool both_nan = max[c] > 0x7f800000u && want_max[c] > 0x7f800000u;
            CHECK((max[c] == want_max[c] || both_nan));
          }
        }
  }

  TEST_CASE("the smallest magnitude passes over zeros, in any storage") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : MainKinds())
        for (const std::int64_t n : {1, 15, 16, 33, 1000})
          for (const bool wild : {false, true}) {
            CAPTURE(kernels->name);
            CAPTURE(kind.name);
            CAPTURE(n);
            Memory in(kind.storage, Input(kind, n, 3, wild));
            std::uint32_t want = 0xffffffffu;
            for (const float v : in.Get()) want = std::min(want, MagnitudeBits(v) - 1);
            CHECK(kernels->smallest_stored(in.piece(), n) == want);
            Memory zeros(kind.storage, Values(static_cast<std::size_t>(n), -0.0f));
            CHECK(kernels->smallest_stored(zeros.piece(), n) == 0xffffffffu);
          }
  }

  TEST_CASE("the largest magnitude: inf beats numbers, NaN beats inf") {
    for (const Kernels* kernels : KernelSets())
      for (const std::size_t n : {1, 16, 17, 1000}) {
        CAPTURE(kernels->name);
        CAPTURE(n);
        Values x = Normal(n, 1, n);
        std::uint32_t want = 0;
        for (const float v : x) want = std::max(want, MagnitudeBits(v));
        CHECK(kernels->largest(x.data(), Length(n)) == want);
        x[n / 2] = -INFINITY;
        CHECK(kernels->largest(x.data(), Length(n)) == 0x7f800000u);
        x[n - 1] = -NAN;
        CHECK(kernels->largest(x.data(), Length(n)) > 0x7f800000u);
        CHECK(kernels->largest(x.data(), 0) == 0);
      }
  }

  TEST_CASE("sanitize: NaN to zero, too large to the limit, everything else as it was") {
    for (const Kernels* kernels : KernelSets())
      for (const std::size_t n : {1, 16, 17, 1003}) {
        CAPTURE(kernels->name);
        CAPTURE(n);
        Values x = RandomBits(n, n);
        x[0] = -INFINITY, x[n / 2] = -65505, x[n - 1] = NAN;
        Values want = x;
        for (float& v : want) {
          if (std::isnan(v)) v = 0;
          if (std::fabs(v) > 65504) v = std::copysign(65504.0f, v);
        }
        kernels->sanitize(x.data(), Length(n), 65504);
        CHECK(FirstDifference(x, want) == -1);
      }
  }

  TEST_CASE("largest_stored: the largest magnitude of any storage, a NaN above all") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : MainKinds())
        for (const std::size_t n : {1, 15, 16, 31, 33, 1000}) {
          CAPTURE(kernels->name);
          CAPTURE(kind.name);
          CAPTURE(n);
          Values x = RoundAll(kind.format, Normal(n, 1, n));
          x[n - 1] = -x[n - 1];
          float want = 0;
          for (const float v : x) want = std::max(want, std::fabs(v));
          const auto largest = [&] {
            Memory in(kind.storage, x);
            return std::bit_cast<float>(kernels->largest_stored(in.piece(), Length(n)));
          };
          CHECK(largest() == want);
          x[n / 2] = -INFINITY;
          CHECK(largest() == INFINITY);
          x[n / 3] = NAN;
          if (n > 3) CHECK(std::isnan(largest()));
        }
  }

  TEST_CASE("sets agree on tails, channels, the largest and sanitized values") {
    ADA_NEEDS_TWO_SETS();
    ForPixels([](const Style& kind, const Pixels& p, bool wild) {
      CHECK(Disagreement([&](const Kernels& k, Record& record) {
              Memory in(kind.storage, Input(kind, p.n(), 1, wild));
              Values values = Input(kind, p.n(), 2, wild);
              const auto channels = static_cast<std::size_t>(p.channels);
              std::vector<std::uint32_t> min(channels, 0xffffffffu), max(channels, 0);
              k.channel_magnitudes(in.piece(), p.pixels, p.channels, min.data(), max.data());
              record.values.insert(record.values.end(), min.begin(), min.end());
              for (const std::uint32_t bits : max) record.Add(Values{std::bit_cast<float>(bits)});
              cpu::TailCounts tail;
              k.exponent_tail(values.data(), Length(p.n()), tail);
              for (const std::int64_t count : tail.bins)
                record.values.push_back(static_cast<double>(count));
              record.values.push_back(static_cast<double>(tail.nonzero));
              record.Add(Values{std::bit_cast<float>(tail.max_bits)});
              record.Add(Values{std::bit_cast<float>(k.largest(values.data(), Length(p.n())))});
              record.Add(Values{std::bit_cast<float>(k.largest_stored(in.piece(), Length(p.n())))});
              k.sanitize(values.data(), Length(p.n()), 100);
              record.Add(values);
            }) == -1);
    });
  }
}

}  // namespace ada::backend::test
