// How ops round in other than the plain way: stochastically, with a scale of the tensor's own, to
// formats that differ from tensor to tensor, and dw to its own. Every op runs twice: once with fp32
// tensors, which leaves the values before rounding, and once as tested; each stored value must be
// the scalar definition's rounding of the former.
#include <doctest/doctest.h>

#include "backend/naive_batch_norm.h"
#include "backend/naive_count.h"
#include "backend/naive_matmul.h"
#include "backend/styles.h"

namespace ada::backend::test {
namespace {

// The same values in fp32.
Tensor Wide(Bench& bench, const Tensor& t) { return bench.Make(t.shape, kFp32, Bench::Get(t)); }
Gradient Wide(Bench& bench, const Gradient& g) {
  return bench.MakeGradient(g.tensor.shape, kFp32, Bench::Get(g.tensor), *g.scale);
}
// Formats by role and how each tensor is rounded.
struct Roles {
  NumberFormat x, w, y, dy, dx, dw;
  bool stochastic = false;
  float y_scale = 0, dx_scale = 0;
};
const std::vector<Roles>& AllRoles() {
  static const std::vector<Roles> roles = {
      {kFp16, kBf16, kFp16, kFp32, kBf16, kFp16},
      {kFp32, kFp16, kBf16, kBf16, kFp16, kBf16},
      {kBf16, kFp8E4M3, kFp8E4M3, kFp8E5M2, kFp8E5M2, kFp8E5M2},
      {kFp16, kFp16, kFp16, kFp16, kFp16, kFp16, true},
      {kFp16, kFp8E4M3, kFp8E4M3, kFp16, kFp8E5M2, kFp16, true, 0, 0},
      {kFp32, kFp8E4M3, kFp8E4M3, kFp32, kFp8E5M2, kFp32, false, 13, 640},
      {kFp16, kFp8E4M3, kFp8E4M3, kBf16, kFp8E5M2, kBf16, true, 13, 640}};
  return roles;
}

void CheckConvolution(const Roles& r, int threads) {
  const std::array<int, 2> one = {1, 1}, three = {3, 3};
  const MatmulCase c{"conv", {11, 16, 16, 5}, 20, three, one, one, one, 1, true};
  constexpr int kRows = 9;
  Bench bench(threads);
  MatmulBench p(bench, c, kFp32, 16, 4);
  MatmulSpec& s = p.spec;
  const Style y(r.stochastic, 1, r.y_scale), w(r.stochastic, 2), dx(r.stochastic, 3, r.dx_scale),
      dw(r.stochastic, 4);
  const Style exact(false);
  s.x = bench.Make(c.x, r.x, Bench::Get(s.x));
  s.dy.tensor = bench.Make(c.y(), r.dy, Bench::Get(s.dy.tensor));
  s.w_format = r.w, s.w_style = w.style;
  p.Step(*p.MakeOp(bench), Drawing(kRows));
  const Values before_y = Bench::Get(s.y), before_dx = Bench::Get(s.dx.tensor),
               before_dw = Bench::Get(s.dw), db = Bench::Get(s.db);
  // The rounded weights themselves: masters that are on the grid change nothing.
  const Values masters = Bench::Get(s.w);
  Bench::Set(s.w, w.Round(r.w, masters));
  s.w_style = RoundingStyle{};
  p.Step(*p.MakeOp(bench), Drawing(kRows));
  CheckEqual(s.y, before_y);
  CheckEqual(s.dx.tensor, before_dx);

  s.y = MakeFor(bench, c.y(), r.y, y), s.y_style = y.style;
  s.dx = GradientFor(bench, c.x, r.dx, dx);
  s.dw_format = r.dw, s.dw_style = dw.style;
  p.Step(*p.MakeOp(bench), Drawing(kRows));
  CheckRounded("y", s.y, y, before_y, kRows);
  CheckRounded("dx", s.dx.tensor, dx, before_dx, kRows);
  CheckEqual(s.dw, dw.Round(r.dw, before_dw));
  CheckEqual(s.db, db);
  CHECK(s.y_stats->numel == kRows * c.y().per_image());
  CHECK(s.dw_stats->numel == c.w().numel());
  if (!r.stochastic) CheckStats(*s.dw_stats, r.dw, before_dw);
  CheckMoments(*s.dx.moments, First(Bench::Get(s.dx.tensor), kRows, c.x));
}

void CheckBatchNorm(const Roles& r, bool addend, int threads) {
  const BatchNormCase c = {"bn", {9, 16, 16, 19}, 7, addend, false};
  Bench bench(threads);
  BatchNormBench b(bench, c, kFp32, 4);
  BatchNormSpec& s = b.spec;
  const Style y(r.stochastic, 1, r.y_scale), sum(r.stochastic, 2, r.y_scale),
      dx(r.stochastic, 3, r.dx_scale);
  s.x = bench.Make(c.x, r.x, Bench::Get(s.x));
  s.dy.tensor = bench.Make(c.x, r.dy, Bench::Get(s.dy.tensor));
  const Tensor other = s.addend;
  s.addend = Tensor{};
  const auto run = [&] {
    const auto op = bench->Make(s);
    op->Forward(Drawing(c.rows));
    op->Backward(Drawing(c.rows));
  };
  run();
  const Values before = Bench::Get(s.out), before_dx = Bench::Get(s.dx.tensor);
  s.out = MakeFor(bench, c.x, r.y, y), s.y_style = y.style;
  s.dx = GradientFor(bench, c.x, r.dx, dx);
  if (addend) {
    s.addend = bench.Make(c.x, r.w, Bench::Get(other)), s.sum_style = sum.style;
    s.y_format = r.x == kFp32 ? kBf16 : r.x;
  }
  run();
  Values want = before;
  if (addend) {
    want = y.Round(s.y_format, before);
    const Values more = Bench::Get(s.addend);
    for (std::size_t i = 0; i < want.size(); ++i) want[i] += more[i];
  }
  CheckRounded("out", s.out, addend ? sum : y, want, c.rows);
  CheckRounded("dx", s.dx.tensor, dx, before_dx, c.rows);
}

// Backward and forward of an op with x, y, dy and dx, in fp32 and with formats.
template <class Spec, class Make>
void CheckPlain(const char* what, const Roles& r, Spec spec, const Shape& x, const Shape& y,
                bool rounds_y, int threads, Make&& make) {
  CAPTURE(what);
  Bench bench(threads);
  const auto n = static_cast<std::size_t>(x.numel()), m = static_cast<std::size_t>(y.numel());
  const int rows = static_cast<int>(x.n) - 1;
  const Style y_style(r.stochastic, 1, r.y_scale), dx_style(r.stochastic, 3, r.dx_scale);
  spec.x = bench.Make(x, r.x, Normal(n, 1, 1));
  spec.dy = bench.MakeGradient(y, r.dy, Normal(m, 1, 2), 4);
  const Spec tested = [&] {
    Spec t = spec;
    t.y = rounds_y ? MakeFor(bench, y, r.y, y_style) : bench.Make(y, r.x);
    if constexpr (requires { t.y_style; }) t.y_style = y_style.style;
    t.dx = GradientFor(bench, x, r.dx, dx_style);
    return t;
  }();
  spec.x = Wide(bench, spec.x), spec.dy = Wide(bench, spec.dy);
  spec.y = bench.Make(y, kFp32), spec.dx = bench.MakeGradient(x, kFp32);
  for (const Spec* s : {static_cast<const Spec*>(&spec), &tested}) {
    const auto op = make(bench, *s);
    op->Forward(Drawing(rows));
    op->Backward(Drawing(rows));
  }
  if (rounds_y) CheckRounded("y", tested.y, y_style, Bench::Get(spec.y), rows);
  if (!rounds_y) CheckEqual(tested.y, Bench::Get(spec.y));
  CheckRounded("dx", tested.dx.tensor, dx_style, Bench::Get(spec.dx.tensor), rows);
  CHECK(*tested.dx.scale == *spec.dx.scale);
}
void CheckPlainOps(const Roles& r, int threads) {
  const Shape x{7, 16, 16, 19}, half{7, 8, 8, 19};
  CheckPlain("relu", r, ReluSpec{}, x, x, false, threads,
             [](Bench& b, const ReluSpec& s) { return b->Make(s); });
  DropoutSpec drop;
  drop.rate = 0.3f, drop.stream = 9;
  CheckPlain("dropout", r, drop, x, x, true, threads,
             [](Bench& b, const DropoutSpec& s) { return b->Make(s); });
  MaxPoolSpec max;
  max.kernel = {3, 3}, max.stride = {2, 2}, max.padding = {1, 1};
  CheckPlain("max pool", r, max, x, half, false, threads,
             [](Bench& b, const MaxPoolSpec& s) { return b->Make(s); });
  AvgPoolSpec avg;
  avg.kernel = max.kernel, avg.stride = max.stride, avg.padding = max.padding;
  CheckPlain("average pool", r, avg, x, half, true, threads,
             [](Bench& b, const AvgPoolSpec& s) { return b->Make(s); });
  scaling::LayerScaler scaler;
  scaler.rule.method = scaling::LayerMethod::kFixed, scaler.rule.fixed_scale = 8;
  ScaleSpec scale;
  scale.scaler = &scaler;
  CheckPlain("scale", r, scale, x, x, true, threads,
             [](Bench& b, const ScaleSpec& s) { return b->Make(s); });
}

void CheckSums(const Roles& r, int threads) {
  const Shape shape{7, 16, 16, 19};
  const auto n = static_cast<std::size_t>(shape.numel());
  Bench bench(threads);
  const Style y(r.stochastic, 1, r.y_scale), sum(r.stochastic, 2, r.dx_scale);
  AddSpec add, wide_add;
  BranchSumSpec branch, wide_branch;
  for (std::size_t i = 0; i < 3; ++i) {
    const NumberFormat& format = i == 0 ? r.x : i == 1 ? r.y : r.dy;
    add.x.push_back(bench.Make(shape, format, Normal(n, 1, i)));
    wide_add.x.push_back(Wide(bench, add.x[i]));
    branch.branches.push_back(
        bench.MakeGradient(shape, format, Normal(n, 1e-3, i), i == 1 ? 16 : 8));
    branch.branches[i].moments = nullptr;
    wide_branch.branches.push_back(Wide(bench, branch.branches[i]));
    wide_branch.branches[i].moments = nullptr;
  }
  add.y = MakeFor(bench, shape, r.y, y), add.y_style = y.style;
  wide_add.y = bench.Make(shape, kFp32);
  branch.sum = GradientFor(bench, shape, r.dx, sum);
  wide_branch.sum = bench.MakeGradient(shape, kFp32);
  for (const AddSpec* s : {&add, &wide_add}) bench->Make(*s)->Forward(Drawing(6));
  for (const BranchSumSpec* s : {&branch, &wide_branch}) bench->Make(*s)->Backward(Drawing(6));
  CheckRounded("sum", add.y, y, Bench::Get(wide_add.y), 6);
  CheckRounded("branch sum", branch.sum.tensor, sum, Bench::Get(wide_branch.sum.tensor), 6);
  CHECK(*branch.sum.scale == 16);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("styles: every op, every mix of formats, stochastic and scaled, 1 to 4 threads") {
    int index = 0;
    for (const Roles& r : AllRoles()) {
      CAPTURE(index++);
      for (const int threads : {1, 2, 3, 4}) {
        CAPTURE(threads);
        CheckConvolution(r, threads);
        if (threads % 2 == 0 && index % 2 == 0) continue;
        CheckBatchNorm(r, false, threads);
        // With a per-tensor scale the sum is stored in fp32, so the part before it may be scaled.
        CheckBatchNorm(r, true, threads);
        CheckPlainOps(r, threads);
        CheckSums(r, threads);
      }
    }
  }
}

}  // namespace ada::backend::test
