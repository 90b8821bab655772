// Stochastic rounding and tensors with a per-tensor scale in every kernel that rounds, against
// core's scalar definition: which random word a value takes, what is counted and what is stored.
#include <doctest/doctest.h>

#include "backend/isa_record.h"

namespace ada::backend::test {
namespace {

std::uint32_t Word(const cpu::Rounding& rounding, std::size_t i) {
  const std::uint64_t at = rounding.first + i;
  return Philox(rounding.key, rounding.draw, at / 4)[static_cast<std::size_t>(at % 4)];
}

struct Expected {
  Values before, scaled, after, stored;
};
// `in` rounded by the scalar definition, value i of the block with word first + i.
Expected Expect(const cpu::Rounding& rounding, const Values& in) {
  Expected e{in, in, Values(in.size()), Values(in.size())};
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (rounding.scale != 1) e.scaled[i] *= rounding.scale;
    e.after[i] = rounding.stochastic
                     ? RoundStochastically(rounding.format, e.scaled[i], Word(rounding, i))
                     : RoundTo(rounding.format, e.scaled[i]);
    e.stored[i] = rounding.scale != 1 ? e.after[i] / rounding.scale : e.after[i];
  }
  return e;
}

void CheckNotes(const cpu::Rounding& rounding, const Expected& e, const BlockStats& stats) {
  const NaiveCount want =
      CountNaively(rounding.format, e.before, e.scaled, e.after, e.stored, rounding.edge);
  CheckBlock(want, stats);
  if (rounding.moments) CheckRoundedMoments(want, stats);
}

// Runs a kernel that rounds its results, first in fp32 to learn what it rounds, then in each style,
// and compares. run(kernels, rounding, out) computes `n` values into `out` (fp32).
template <class Run>
void CheckStyles(std::size_t n, Run&& run) {
  for (const Kernels* kernels : KernelSets()) {
    CAPTURE(kernels->name);
    Memory exact(Storage::kF32, n);
    run(*kernels, cpu::Rounding{}, exact.piece());
    for (Style style : AllStyles()) {
      style.storage = Storage::kF32;
      CAPTURE(style.name);
      BlockStats stats;
      const cpu::Rounding rounding = Rounds(style, &stats);
      Memory out(Storage::kF32, n);
      run(*kernels, rounding, out.piece());
      const Expected want = Expect(rounding, exact.Get());
      CHECK(FirstDifference(out.Get(), want.stored) == -1);
      CHECK(out.guard_intact());
      CheckNotes(rounding, want, stats);
    }
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("round in every style: each storage, boundaries and random bits") {
    for (const Kernels* kernels : KernelSets())
      for (const Style& style : AllStyles()) {
        CAPTURE(kernels->name);
        CAPTURE(style.name);
        Values boundaries = Boundaries(style.format);
        if (boundaries.size() > 20011) {  // a sample of large formats
          for (std::size_t i = 0; i < 20011; ++i)
            boundaries[i] = boundaries[i * (boundaries.size() / 20011)];
          boundaries.resize(20011);
        }
        for (const Values& in : {boundaries, RandomBits(5003, 1), Spread(style.format, 5003, 2)}) {
          Memory out(style.storage, in.size());
          BlockStats stats;
          const cpu::Rounding rounding = Rounds(style, &stats);
          kernels->round(in.data(), 1, out.piece(), Length(in.size()), rounding);
          const Expected want = Expect(rounding, in);
          const std::int64_t wrong = FirstDifference(out.Get(), want.stored);
          CHECK_MESSAGE(wrong == -1, "value " << in[static_cast<std::size_t>(std::max(wrong, 0l))]);
          CHECK(out.guard_intact());
          CheckNotes(rounding, want, stats);
          // Beyond fp32 the way back is lost.
          if (std::isinf(static_cast<float>(style.format.largest()) / style.scale)) continue;
          BlockStats inspected;
          cpu::Rounding again = rounding;
          again.stats = &inspected;
          kernels->inspect(out.piece(), Length(in.size()), again);
          CheckNotes(rounding, {want.stored, want.after, want.after, want.stored}, inspected);
        }
      }
  }

  // A scale from earlier steps may be too large for a value that came after, or too small.
  TEST_CASE("round with a scale that takes values out of fp32, at either end") {
    const NumberFormat fnuz{8, 7, 128, false, true, false};
    NumberFormat saturating = kBf16;
    saturating.saturate = true;
    for (const Kernels* kernels : KernelSets())
      for (const NumberFormat& format : {kBf16, saturating, fnuz, kFp16, kFp8E4M3, kFp6E3M2})
        for (const float scale : {0x1p127f, 0x1.fp120f, 0x1p-100f, 0x1p-140f})
          for (const bool stochastic : {false, true}) {
            CAPTURE(kernels->name);
            CAPTURE(FormatName(format));
            CAPTURE(scale);
            const Style style{{FormatName(format), format, Storage::kF32}, stochastic, scale};
            Values in = RandomBits(5003, 3);
            for (const float v : Normal(5003, 1, 4)) in.push_back(v);
            in.push_back(0), in.push_back(-0.0f);
            Memory out(Storage::kF32, in.size());
            BlockStats stats, largest;
            cpu::Rounding rounding = Rounds(style, &stats);
            kernels->round(in.data(), 1, out.piece(), Length(in.size()), rounding);
            const Expected want = Expect(rounding, in);
            CHECK(FirstDifference(out.Get(), want.stored) == -1);
            CheckNotes(rounding, want, stats);
            rounding.stats = &largest, rounding.count = false;  // a step that is not logged
            kernels->round(in.data(), 1, out.piece(), Length(in.size()), rounding);
            CHECK(largest.max_bits == stats.max_bits);
          }
  }

  TEST_CASE("round with a scale that is NaN: values that are not are lost, and those alone") {
    for (const Kernels* kernels : KernelSets())
      for (const NumberFormat& format : {kBf16, kFp8E4M3}) {
        CAPTURE(kernels->name);
        Values in(21, NAN);  // no whole vector
        in[3] = 0, in[17] = 1;
        Memory out(Storage::kF32, in.size());
        BlockStats stats;
        const Style style{{FormatName(format), format, Storage::kF32}, false, NAN};
        kernels->round(in.data(), 1, out.piece(), Length(in.size()), Rounds(style, &stats));
        CHECK(stats.values == 21);
        CHECK(stats.nan == 19);
        CHECK(stats.zeros == 1);
        CHECK(stats.overflow == 2);
        CHECK(stats.below_min == 0);
      }
  }

  TEST_CASE("sum and relu's mask take the word of the value's place") {
    const std::size_t n = 4133;
    Memory a(Storage::kF32, Normal(n, 1, 1)), b(Storage::kF32, Normal(n, 1e-3, 2));
    CheckStyles(n, [&](const Kernels& k, const cpu::Rounding& rounding, TensorSpan out) {
      const TensorSpan in[] = {a.piece(), b.piece()};
      k.sum(in, nullptr, 2, out, Length(n), rounding);
    });
    CheckStyles(n, [&](const Kernels& k, const cpu::Rounding& rounding, TensorSpan out) {
      k.relu_backward(a.piece(), b.piece(), out, Length(n), rounding);
    });
  }

  TEST_CASE("batch norm backward takes the word of the value's place, not of its turn") {
    const std::int64_t pixels = 270, channels = 37;
    const auto n = static_cast<std::size_t>(pixels * channels);
    Memory x(Storage::kF32, Normal(n, 1, 1)), dy(Storage::kF32, Normal(n, 1e-2, 2));
    const Values p = Normal(static_cast<std::size_t>(channels), 1, 3);
    CheckStyles(n, [&](const Kernels& k, const cpu::Rounding& rounding, TensorSpan out) {
      cpu::BatchNormBackwardArgs a;
      a.x = x.piece(), a.dy = dy.piece(), a.dx = out;
      a.pixels = pixels, a.channels = channels;
      a.mean = a.factor = a.mean_dy = a.slope = p.data();
      a.dx_rounding = rounding;
      k.batch_norm_backward(a);
    });
  }

  TEST_CASE("pooling, over several images") {
    cpu::PoolArgs a;
    a.images = 3, a.h = 6, a.w = 5, a.c = 19;
    a.kernel_h = a.kernel_w = 3, a.stride_h = a.stride_w = 2, a.pad_h = a.pad_w = 1;
    a.out_h = 3, a.out_w = 3;
    const auto in = static_cast<std::size_t>(a.images * a.h * a.w * a.c);
    const auto out = static_cast<std::size_t>(a.images * a.out_h * a.out_w * a.c);
    Memory x(Storage::kF32, Normal(in, 1, 1)), dy(Storage::kF32, Normal(out, 1, 2));
    Memory y(Storage::kF32, out);
    std::vector<std::uint16_t> index(out);
    Values work(in);
    a.index = index.data(), a.work = work.data();
    CheckStyles(out, [&](const Kernels& k, const cpu::Rounding& rounding, TensorSpan to) {
      cpu::PoolArgs p = a;
      p.x = x.piece(), p.y = to, p.rounding = rounding;
      k.avg_pool(p);
    });
    CheckStyles(in, [&](const Kernels& k, const cpu::Rounding& rounding, TensorSpan to) {
      cpu::PoolArgs p = a;
      p.x = x.piece(), p.y = y.piece();
      k.max_pool(p);
      p.x = to, p.y = dy.piece(), p.rounding = rounding;
      k.max_pool_backward(p);
    });
    CheckStyles(in, [&](const Kernels& k, const cpu::Rounding& rounding, TensorSpan to) {
      cpu::PoolArgs p = a;
      p.x = to, p.y = dy.piece(), p.rounding = rounding;
      k.avg_pool_backward(p);
    });
  }

  TEST_CASE("batch norm forward: two roundings, each with its format, style and notes") {
    const std::int64_t pixels = 259, channels = 35;
    const auto n = static_cast<std::size_t>(pixels * channels);
    const Values p = Normal(static_cast<std::size_t>(channels), 1, 3);
    const NumberFormat fnuz{4, 3, 8, false, true, false};
    const Style e4m3{{"e4m3", kFp8E4M3, Storage::kF16}, false, 1};
    struct {
      Style y, sum;
      Storage storage;
      bool count_y, count_sum;
    } const table[] = {
        {e4m3, {{"fp16", kFp16, Storage::kF16}, false, 1}, Storage::kF16, true, true},
        {{{"bf16", kBf16, Storage::kBF16}, false, 1}, e4m3, Storage::kF16, true, false},
        {e4m3, {{"fnuz", fnuz, Storage::kF16}, true, 1}, Storage::kF16, false, true},
        {{{"fp16", kFp16, Storage::kF16}, false, 1},
         {{"fp16", kFp16, Storage::kF16}, false, 1},
         Storage::kF16,
         false,
         true},
        {{{"fp16", kFp16, Storage::kF16}, false, 1},
         {{"fp16", kFp16, Storage::kF16}, false, 1},
         Storage::kF16,
         false,
         false},
        {{{"fp8", kFp8E5M2, Storage::kF32}, true, 8},
         {{"fp8", kFp8E4M3, Storage::kF32}, false, 3},
         Storage::kF32,
         true,
         true},
    };
    for (const Kernels* kernels : KernelSets())
      for (const auto& row : table)
        for (const bool relu : {false, true}) {
          CAPTURE(kernels->name);
          CAPTURE(row.y.name);
          CAPTURE(row.sum.name);
          const NumberFormat in_format = row.storage == Storage::kF16 ? kFp16 : kFp32;
          Memory x(row.storage, RoundAll(in_format, Normal(n, 1, 1)));
          Memory addend(row.storage, RoundAll(kFp8E4M3, Normal(n, 1, 2)));
          Memory exact(Storage::kF32, n), out(row.storage, n);
          cpu::BatchNormForwardArgs a;
          a.x = x.piece(), a.out = exact.piece(), a.pixels = pixels, a.channels = channels;
          a.mean = a.factor = a.beta = p.data();
          kernels->batch_norm_forward(a);
          BlockStats y_stats, sum_stats;
          a.y = Rounds(row.y, &y_stats, false), a.sum = Rounds(row.sum, &sum_stats, false);
          a.y.count = row.count_y, a.sum.count = row.count_sum, a.sum.key = 99;
          a.out = out.piece(), a.addend = addend.piece(), a.relu = relu;
          kernels->batch_norm_forward(a);
          const Expected y = Expect(a.y, exact.Get());
          const Values added = addend.Get();
          Values sums = y.stored;
          for (std::size_t i = 0; i < n; ++i) sums[i] += added[i];
          const Expected sum = Expect(a.sum, sums);
          Values want = sum.stored;
          for (float& v : want)
            if (relu && v <= 0) v = 0;
          CHECK(FirstDifference(out.Get(), want) == -1);
          const auto check = [](const cpu::Rounding& how, const Expected& e, const BlockStats& s) {
            if (how.count) return CheckNotes(how, e, s);
            CHECK(s.zeros + s.underflow + s.below_min + s.subnormal + s.overflow == 0);
            CHECK(s.l1 == 0);
            CHECK(s.max_bits == CountNaively(how.format, e.before, e.after).stats.max_bits);
          };
          check(a.y, y, y_stats);
          check(a.sum, sum, sum_stats);
        }
  }
}

}  // namespace ada::backend::test
