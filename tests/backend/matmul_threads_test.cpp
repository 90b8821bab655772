// Products write the same bytes with any number of threads and in every call, micro-batches add up,
// and channel moments are those that a batch norm takes itself, at awkward shapes.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/matmul_exact.h"
#include "backend/naive_batch_norm.h"
#include "backend/written.h"

namespace ada::backend::test {
namespace {

// Bytes of everything that a layer with ordinary values writes in three micro-batches.
std::vector<std::byte> Bytes(Bench& bench, const MatmulCase& c, const FormatSet& f, int rows,
                             int repeats) {
  MatmulBench p(bench, c, f.formats, 16, 2);
  const bool quiet = rows % 2 == 0;
  if (quiet) p.spec.dx.moments = nullptr;
  const auto op = p.MakeOp(bench);
  std::vector<std::byte> bytes;
  const auto add = [&](const void* from, std::size_t n) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + n);
  };
  for (int repeat = 0; repeat < repeats; ++repeat) {
    bytes.clear();
    Pass pass = quiet ? QuietPass(rows) : MakePass(rows);
    for (const int micro : {0, 1, 2}) {
      pass.accumulate = micro > 0;
      pass.rows = micro == 2 ? (rows + 1) / 2 : rows;
      p.Step(*op, pass);
    }
    for (const Tensor& t : {p.spec.y, p.spec.dx.tensor, p.spec.dw}) add(t.data, t.bytes());
    if (c.bias) add(p.spec.db.data, p.spec.db.bytes());
    Written notes;
    for (const TensorStats* s : {p.spec.y_stats, p.spec.dx.stats, p.spec.dw_stats}) notes.Add(*s);
    if (!quiet) notes.Add(*p.spec.dx.moments, true);
    add(notes.numbers.data(), notes.numbers.size() * sizeof(double));
  }
  return bytes;
}
void CheckThreads(const MatmulCase& c, const FormatSet& f, int rows) {
  CAPTURE(Text(c));
  CAPTURE(f.name);
  CAPTURE(rows);
  Bench one(1), two(2), three(3);
  const std::vector<std::byte> want = Bytes(one, c, f, rows, 1);
  CHECK(Bytes(two, c, f, rows, 1) == want);
  CHECK(Bytes(three, c, f, rows, 2) == want);  // and in a second round
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tile threads: the same bytes with 1, 2 and 3 threads, again, in micro-batches") {
    for (const MatmulCase& c : RandomMatmuls(25, 3e5, 10)) {
      const auto f = static_cast<std::size_t>(c.x.h + c.x.w) % KernelFormats().size();
      CheckThreads(c, KernelFormats()[f], static_cast<int>(c.x.n));
      CheckThreads(c, KernelFormats()[0], static_cast<int>(c.x.n));
    }
    const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, no = {0, 0};
    const std::vector<MatmulCase> large = {
        {"16", {75, 16, 16, 16}, 16, three, one, one, one, 1, true},
        {"stride 2", {39, 17, 15, 16}, 32, three, two, one, one, 1, false},
        {"64", {66, 8, 8, 64}, 64, three, one, one, one, 1, false},
        {"1x1", {70, 8, 8, 32}, 17, one, one, no, one, 1, false},
        LinearCase("linear", {3000, 1, 1, 64}, 33, true)};
    for (const MatmulCase& c : large)
      for (const std::size_t format : {0u, 1u})
        CheckThreads(c, KernelFormats()[format], static_cast<int>(c.x.n) - 3);
  }

  TEST_CASE("tile threads: micro-batches add up to the sum of their gradients") {
    for (const MatmulCase& c : RandomMatmuls(20, 2e5, 11)) {
      CAPTURE(Text(c));
      const int all = static_cast<int>(c.x.n);
      const ExactInputs in(c, AllOf(kFp16), Exact32::kSparse, 6 * c.x.n, 5);
      Bench bench;
      ExactBench p(bench, c, AllOf(kFp16), in, 4, 8);
      const auto op = p.MakeOp(bench);
      std::vector<double> dw(static_cast<std::size_t>(c.w().numel())),
          db(static_cast<std::size_t>(c.out));
      Pass pass = MakePass(all);
      for (const int rows : {all, 1, (all + 1) / 2}) {
        pass.rows = rows;
        p.Step(*op, pass);
        pass.accumulate = true;
        const NaiveMatmul part = ComputeNaively(c, rows, in.x, in.w, in.b, in.dy);
        for (std::size_t i = 0; i < dw.size(); ++i) dw[i] += part.dw[i].value / 4;
        for (std::size_t i = 0; i < db.size(); ++i) db[i] += part.db[i].value / 4;
      }
      const Values got = Bench::Get(p.spec.dw);
      CHECK(std::equal(got.begin(), got.end(), dw.begin(),
                       [](float a, double b) { return static_cast<double>(a) == b; }));
      if (!c.bias) continue;
      const Values got_db = Bench::Get(p.spec.db);
      CHECK(std::equal(got_db.begin(), got_db.end(), db.begin(),
                       [](float a, double b) { return static_cast<double>(a) == b; }));
    }
  }

  TEST_CASE("tile threads: channel moments are those that batch norm takes itself") {
    for (MatmulCase c : RandomMatmuls(25, 4e5, 12)) {
      CAPTURE(Text(c));
      c.bias = false;
      const int rows = static_cast<int>((c.x.n + 1) / 2);
      for (const NumberFormat& format : {kFp16, kBf16}) {
        CAPTURE(FormatName(format));
        Bench bench;
        MatmulBench p(bench, c, format, 1, 1);
        const std::int64_t blocks = (c.x.n - 1) / bench->BlockImages(c.y()) + 1;
        Tensor mean = bench.Make({blocks, 1, 1, c.out}, kFp32), m2 = bench.Make(mean.shape, kFp32);
        p.spec.y_moments = {mean.f32(), m2.f32()};
        const auto op = p.MakeOp(bench);
        op->RefreshWeights({});
        op->Forward(rows % 2 ? QuietPass(rows) : MakePass(rows));
        Values results[2];
        for (const bool own : {false, true}) {
          BatchNormBench b(bench, {"bn", c.y(), rows, false, true}, format, 1);
          b.spec.x = p.spec.y;
          if (!own) b.spec.x_moments = p.spec.y_moments;
          bench->Make(b.spec)->Forward(MakePass(rows));
          for (const Tensor& t : {b.spec.out, b.spec.running_mean, b.spec.running_var}) {
            const Values more = Bench::Get(t);
            results[own].insert(results[own].end(), more.begin(), more.end());
          }
        }
        CHECK(FirstDifference(results[0], results[1]) == -1);
      }
    }
  }
}

}  // namespace ada::backend::test
