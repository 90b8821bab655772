// Widening, rounding and counting of every instruction set against core's scalar conversion and a
// counter in plain loops.
#include <doctest/doctest.h>

#include <cstdlib>

#include "backend/kernel_sets.h"
#include "error.h"

namespace ada::backend::test {
namespace {

constexpr double kEdge = 0.125;  // for BlockStats::above_edge

// Rounds `in` with every note taken and checks values and notes.
void CheckRound(const Kernels& kernels, const Kind& kind, const Values& in, float factor,
                double edge = kEdge) {
  Values before = in;
  for (float& v : before) v *= factor;
  const Values after = RoundAll(kind.format, before);
  Memory out(kind.storage, in.size());
  BlockStats stats;
  kernels.round(in.data(), factor, out.piece(), static_cast<std::int64_t>(in.size()),
                {kind.format, true, true, &stats, edge});
  const std::int64_t wrong = FirstDifference(out.Get(), after);
  CHECK_MESSAGE(wrong == -1, "value " << before[static_cast<std::size_t>(std::max(wrong, 0l))]);
  CHECK(out.guard_intact());
  const NaiveCount want = CountNaively(kind.format, before, before, after, after, edge);
  CheckBlock(want, stats);
  CheckRoundedMoments(want, stats);
}

// Blocks of 16K values, as in a step.
void CheckRoundInBlocks(const Kernels& kernels, const Kind& kind, const Values& in) {
  constexpr std::size_t kBlock = 16384;
  for (std::size_t first = 0; first < in.size(); first += kBlock) {
    const auto begin = in.begin() + static_cast<std::ptrdiff_t>(first);
    const auto n = static_cast<std::ptrdiff_t>(std::min(kBlock, in.size() - first));
    CheckRound(kernels, kind, Values(begin, begin + n), 1.0f);
  }
}

Values Finite(Values values) {
  for (float& v : values)
    if (!std::isfinite(v)) v = 1.5f;
  return values;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("ADA_ISA chooses among the sets of this processor; the best is the default") {
    const char* old = std::getenv("ADA_ISA");
    const std::string kept = old != nullptr ? old : "";
    for (const Kernels* kernels : KernelSets()) {
      setenv("ADA_ISA", kernels->name, 1);
      CHECK(&cpu::SelectKernels() == kernels);
    }
    setenv("ADA_ISA", "", 1);
    CHECK(&cpu::SelectKernels() == KernelSets().back());
    setenv("ADA_ISA", "mmx", 1);
    CHECK_THROWS_AS(cpu::SelectKernels(), DeviceError);
    setenv("ADA_ISA", kept.c_str(), 1);
  }

  TEST_CASE("widen: every code of fp16 and bf16") {
    for (const Kernels* kernels : KernelSets()) {
      CAPTURE(kernels->name);
      std::vector<std::uint16_t> codes(65536);
      Values fp16, bf16, got(65536);
      for (unsigned code = 0; code < 65536; ++code) {
        codes[code] = static_cast<std::uint16_t>(code);
        fp16.push_back(static_cast<float>(ada::test::DecodeIndependently(kFp16, code)));
        bf16.push_back(static_cast<float>(ada::test::DecodeIndependently(kBf16, code)));
      }
      kernels->widen({codes.data(), Storage::kF16}, got.data(), 65536);
      CHECK(FirstDifference(got, fp16) == -1);
      kernels->widen({codes.data(), Storage::kBF16}, got.data(), 65536);
      CHECK(FirstDifference(got, bf16) == -1);
      const Values bits = RandomBits(1000, 1);
      Values same(1000);
      kernels->widen({const_cast<float*>(bits.data()), Storage::kF32}, same.data(), 1000);
      CHECK(FirstDifference(same, bits) == -1);
    }
  }

  TEST_CASE("widen: lengths 1 to 40 write nothing beyond the end") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : MainKinds())
        for (std::size_t n = 1; n <= 40; ++n) {
          Memory in(kind.storage, RoundAll(kind.format, Normal(n, 1, n))), out(Storage::kF32, n);
          kernels->widen(in.piece(), static_cast<float*>(out.piece().data),
                         static_cast<std::int64_t>(n));
          CHECK(FirstDifference(out.Get(), in.Get()) == -1);
          CHECK(out.guard_intact());
        }
  }

  TEST_CASE("round: each value of the format, each tie and its neighbours") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : AllKinds()) {
        CAPTURE(kernels->name);
        CAPTURE(kind.name);
        CheckRoundInBlocks(*kernels, kind, Boundaries(kind.format));
      }
  }

  TEST_CASE("round: random bits, random magnitudes, and no infinity among them") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : AllKinds()) {
        CAPTURE(kernels->name);
        CAPTURE(kind.name);
        const Values bits = RandomBits(50007, 2);
        CheckRoundInBlocks(*kernels, kind, bits);
        CheckRoundInBlocks(*kernels, kind, Finite(bits));
        CheckRoundInBlocks(*kernels, kind, Spread(kind.format, 50003, 3));
        CheckRoundInBlocks(*kernels, kind, Normal(16384, 1, 4));
      }
  }

  TEST_CASE("round: what lies above edges small and large, infinities too") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : AllKinds())
        for (const double edge : {1e-6, 0.5, 1.0, 3.0, 1e9, 1e300}) {
          CAPTURE(kernels->name);
          CAPTURE(kind.name);
          CAPTURE(edge);
          CheckRound(*kernels, kind, Spread(kind.format, 5003, 7), 1.0f, edge);
          // Nothing beyond what just overflows.
          const float most = OverflowThreshold(kind.format);
          CheckRound(*kernels, kind, {most, std::nextafter(most, 0.0f), -most, 0, 1}, 1.0f, edge);
          CheckRound(*kernels, kind, RandomBits(17, 8), 1.0f, edge);
        }
  }

  TEST_CASE("round: the factor multiplies in fp32 before the rounding") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : AllKinds())
        for (const float factor : {0.125f, 3.0f, 4096.0f, 1e-3f}) {
          CAPTURE(kernels->name);
          CAPTURE(kind.name);
          CheckRound(*kernels, kind, Spread(kind.format, 4099, 5), factor);
        }
  }

  TEST_CASE("round: lengths 1 to 40, notes included") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : AllKinds())
        for (std::size_t n = 1; n <= 40; ++n) {
          CAPTURE(kernels->name);
          CAPTURE(kind.name);
          CAPTURE(n);
          CheckRound(*kernels, kind, Spread(kind.format, n, n), 1.0f);
          CheckRound(*kernels, kind, RandomBits(n, n), 1.0f);
          CheckRound(*kernels, kind, Values(n, 0.0f), 1.0f);
          CheckRound(*kernels, kind, Values(n, -3.0f), 1.0f);
        }
  }

  TEST_CASE("round: one zero among many values, one value among many zeros") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : MainKinds()) {
        CAPTURE(kernels->name);
        CAPTURE(kind.name);
        const Values values = Normal(5003, 1, 4);
        for (const std::size_t at : {0u, 255u, 256u, 4095u, 4096u, 4863u, 5002u}) {
          CAPTURE(at);
          Values in = values, zeros(values.size());
          in[at] = 0.0f, zeros[at] = values[at];
          CheckRound(*kernels, kind, in, 1.0f);
          CheckRound(*kernels, kind, zeros, 1.0f);
        }
      }
  }

  TEST_CASE("round: only the notes that are asked for") {
    const Values in = Spread(kFp16, 1000, 6), after = RoundAll(kFp16, in);
    const NaiveCount want = CountNaively(kFp16, in, after);
    for (const Kernels* kernels : KernelSets()) {
      CAPTURE(kernels->name);
      Memory out(Storage::kF16, in.size());
      BlockStats none, moments, counts;
      kernels->round(in.data(), 1, out.piece(), 1000, {kFp16, false, false, &none});
      CHECK(none.values == 1000);
      CHECK(none.max_bits == want.stats.max_bits);
      CHECK(none.underflow + none.overflow + none.zeros + none.subnormal == 0);
      kernels->round(in.data(), 1, out.piece(), 1000, {kFp16, false, true, &moments});
      CheckRoundedMoments(want, moments);
      CHECK(moments.underflow == 0);
      kernels->round(in.data(), 1, out.piece(), 1000, {kFp16, true, false, &counts});
      CheckBlock(want, counts);
      CHECK(counts.rounded_square == 0);
      Memory silent(Storage::kF16, in.size());
      kernels->round(in.data(), 1, silent.piece(), 1000, {kFp16, true, true, nullptr});
      CHECK(FirstDifference(silent.Get(), after) == -1);
    }
  }

  TEST_CASE("inspect notes of stored values what round would") {
    for (const Kernels* kernels : KernelSets())
      for (const Kind& kind : AllKinds())
        for (const std::size_t n : {1, 15, 16, 17, 40, 4096, 16383}) {
          CAPTURE(kernels->name);
          CAPTURE(kind.name);
          CAPTURE(n);
          const Values stored = RoundAll(kind.format, Spread(kind.format, n, n));
          Memory in(kind.storage, stored);
          BlockStats stats;
          kernels->inspect(in.piece(), static_cast<std::int64_t>(n),
                           {kind.format, true, true, &stats});
          const NaiveCount want = CountNaively(kind.format, stored, stored);
          CheckBlock(want, stats);
          CheckRoundedMoments(want, stats);
        }
  }
}

}  // namespace ada::backend::test
