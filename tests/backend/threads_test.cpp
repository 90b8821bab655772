// The same bytes with any number of threads: values, gradients and statistics of ops whose work is
// cut into several chunks, groups and blocks, the last one partial.
#include <doctest/doctest.h>

#include <functional>

#include "backend/naive_batch_norm.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

// All that an op wrote, byte for byte.
struct Bytes {
  std::vector<std::byte> bytes;
  void Add(const void* from, std::size_t n) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes.insert(bytes.end(), begin, begin + n);
  }
  void Add(const Tensor& t) { Add(t.data, t.bytes()); }
  void Add(const TensorStats* s) {
    for (const std::int64_t count :
         {s->numel, s->zeros_before, s->zeros_after, s->underflow, s->below_min, s->subnormal,
          s->overflow, s->inf, s->nan, s->above_edge})
      Add(&count, sizeof count);
    for (const double sum : {static_cast<double>(s->min_abs), static_cast<double>(s->max_abs),
                             s->mean, s->std, s->l1, s->l2})
      Add(&sum, sizeof sum);
  }
  void Add(const Gradient& g) {
    Add(g.tensor), Add(g.stats), Add(g.scale, sizeof(float));
    for (const double m :
         {g.moments->mean, g.moments->mean_square, static_cast<double>(g.moments->min),
          static_cast<double>(g.moments->max), static_cast<double>(g.moments->min_abs)})
      Add(&m, sizeof m);
  }
};

// run(bench, bytes) with 1, 2, 3 and 5 threads.
void CheckInvariance(const std::function<void(Bench&, Bytes&)>& run) {
  Bytes first;
  for (const int threads : {1, 2, 3, 5}) {
    CAPTURE(threads);
    Bench bench(threads);
    Bytes bytes;
    run(bench, bytes);
    if (threads == 1) first = bytes;
    CHECK(bytes.bytes.size() > 100);
    CHECK(bytes.bytes == first.bytes);
  }
}

void RunMatmul(Bench& bench, Bytes& bytes, const MatmulCase& c, const NumberFormat& format,
               int rows) {
  MatmulBench p(bench, c, format, 16, 2);
  const auto op = p.MakeOp(bench);
  Pass pass = MakePass(rows);
  for (const bool accumulate : {false, true}) {
    pass.accumulate = accumulate;
    p.Step(*op, pass);
  }
  bytes.Add(p.spec.y), bytes.Add(p.spec.dx), bytes.Add(p.spec.dw);
  if (c.bias) bytes.Add(p.spec.db);
  bytes.Add(p.spec.y_stats), bytes.Add(p.spec.w_stats), bytes.Add(p.spec.dw_stats);
}

std::vector<MatmulCase> CutMatmuls() {
  const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3}, no = {0, 0};
  return {{"many chunks", {75, 16, 16, 16}, 16, three, one, one, one, 1, true},
          {"stride 2", {39, 16, 16, 10}, 20, three, two, one, one, 1, false},
          {"1x1", {70, 8, 8, 32}, 17, one, one, no, one, 1, false},
          {"depthwise", {40, 16, 16, 16}, 16, three, one, one, one, 16, false},
          Transposed({"transposed", {39, 8, 8, 16}, 10, two, two, no, one, 1, true}),
          LinearCase("linear", {3000, 1, 1, 64}, 33, true)};
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("threads: convolution and linear") {
    for (const MatmulCase& c : CutMatmuls()) {
      CAPTURE(c.name);
      const int all = static_cast<int>(c.x.n);
      CheckInvariance([&](Bench& b, Bytes& bytes) { RunMatmul(b, bytes, c, kFp16, all); });
      CheckInvariance([&](Bench& b, Bytes& bytes) { RunMatmul(b, bytes, c, kFp32, all - 5); });
    }
  }

  TEST_CASE("threads: batch norm with sum and relu, forward and backward") {
    const BatchNormCase c = {"bn", {37, 16, 16, 19}, 35, true, true};
    for (const Kind& kind : MainKinds())
      CheckInvariance([&](Bench& bench, Bytes& bytes) {
        BatchNormBench b(bench, c, kind.format, 4);
        const auto op = bench->Make(b.spec);
        op->Forward(MakePass(c.rows));
        op->Backward(MakePass(c.rows));
        for (const Tensor& t :
             {b.spec.out, b.spec.dgamma, b.spec.dbeta, b.spec.running_mean, b.spec.running_var})
          bytes.Add(t);
        bytes.Add(b.spec.dx), bytes.Add(b.spec.y_stats), bytes.Add(b.spec.sum_stats);
      });
  }

  TEST_CASE("threads: pooling") {
    const Shape x{23, 16, 16, 19}, y{23, 8, 8, 19};
    const auto n = static_cast<std::size_t>(x.numel());
    CheckInvariance([&](Bench& bench, Bytes& bytes) {
      MaxPoolSpec max;
      max.kernel = {3, 3}, max.stride = {2, 2}, max.padding = {1, 1};
      max.x = bench.Make(x, kFp16, Normal(n, 1, 1)), max.y = bench.Make(y, kFp16);
      max.dy = bench.MakeGradient(y, kFp16, Normal(n / 4, 1, 2), 2);
      max.dx = bench.MakeGradient(x, kFp16);
      AvgPoolSpec avg;
      avg.kernel = max.kernel, avg.stride = max.stride, avg.padding = max.padding;
      avg.x = max.x, avg.y = bench.Make(y, kFp16), avg.y_stats = bench.Stats();
      avg.dy = max.dy, avg.dx = bench.MakeGradient(x, kFp16);
      const auto max_op = bench->Make(max);
      const auto avg_op = bench->Make(avg);
      for (Op* op : {max_op.get(), avg_op.get()}) {
        op->Forward(MakePass(21));
        op->Backward(MakePass(21));
      }
      bytes.Add(max.y), bytes.Add(max.dx), bytes.Add(avg.y), bytes.Add(avg.dx);
      bytes.Add(avg.y_stats);
    });
  }

  TEST_CASE("threads: gates, factors and norms") {
    const Shape shape{23, 16, 16, 18}, small{23, 1, 1, 18};
    const auto n = static_cast<std::size_t>(shape.numel());
    const auto fill = [&](Bench& bench, auto& spec) {
      spec.x = bench.Make(shape, kFp16, Normal(n, 1, 1)), spec.y = bench.Make(shape, kFp16);
      spec.y_stats = bench.Stats();
      spec.dy = bench.MakeGradient(shape, kFp16, Normal(n, 1, 2), 2);
      spec.dx = bench.MakeGradient(shape, kFp16);
    };
    const auto run = [](Bench& bench, Bytes& bytes, const auto& spec) {
      const auto op = bench->Make(spec);
      op->Forward(MakePass(21));
      op->Backward(MakePass(21));
      bytes.Add(spec.y), bytes.Add(spec.y_stats);
    };
    CheckInvariance([&](Bench& bench, Bytes& bytes) {
      MultiplySpec gated;
      gated.x = {bench.Make(small, kFp16, Normal(23 * 18, 1, 3)),
                 bench.Make(shape, kFp16, Normal(n, 1, 4))};
      gated.y = bench.Make(shape, kFp16), gated.y_stats = bench.Stats();
      gated.dy = bench.MakeGradient(shape, kFp16, Normal(n, 1, 2), 2);
      gated.dx = {bench.MakeGradient(small, kFp16), bench.MakeGradient(shape, kFp16)};
      run(bench, bytes, gated);
      bytes.Add(gated.dx[0]), bytes.Add(gated.dx[1]);
      ChannelScaleSpec factors;
      fill(bench, factors);
      factors.w = bench.Vector(Normal(18, 1, 5)), factors.dw = bench.Vector(Values(18));
      run(bench, bytes, factors);
      bytes.Add(factors.dx), bytes.Add(factors.dw);
      GroupNormSpec norm;
      norm.groups = 3;
      fill(bench, norm);
      norm.gamma = norm.beta = factors.w;
      norm.dgamma = bench.Vector(Values(18)), norm.dbeta = bench.Vector(Values(18));
      run(bench, bytes, norm);
      bytes.Add(norm.dx), bytes.Add(norm.dgamma), bytes.Add(norm.dbeta);
      PreluSpec sloped;
      fill(bench, sloped);
      sloped.w = bench.Vector({0.25f}), sloped.dw = bench.Vector({0});
      run(bench, bytes, sloped);
      bytes.Add(sloped.dx), bytes.Add(sloped.dw);
      BilinearSpec smooth;
      smooth.x = factors.x, smooth.dx = bench.MakeGradient(shape, kFp16);
      smooth.y = bench.Make({23, 32, 32, 18}, kFp16), smooth.y_stats = bench.Stats();
      smooth.dy = bench.MakeGradient(smooth.y.shape, kFp16, Normal(4 * n, 1, 6), 2);
      run(bench, bytes, smooth);
      bytes.Add(smooth.dx);
      ActivationSpec<Gelu> gelu;
      fill(bench, gelu);
      run(bench, bytes, gelu);
      bytes.Add(gelu.dx);
    });
  }

  TEST_CASE("threads: branch sum, dropout and the gradient norm") {
    const Shape shape{45, 16, 16, 19};
    const auto n = static_cast<std::size_t>(shape.numel());
    CheckInvariance([&](Bench& bench, Bytes& bytes) {
      BranchSumSpec sum;
      for (const float scale : {8.0f, 64.0f, 32.0f})
        sum.branches.push_back(bench.MakeGradient(shape, kFp16, Normal(n, 1, 1), scale));
      for (Gradient& g : sum.branches) g.moments = nullptr;
      sum.sum = bench.MakeGradient(shape, kFp16);
      bench->Make(sum)->Backward(MakePass(44));
      DropoutSpec drop;
      drop.x = sum.branches[0].tensor, drop.y = bench.Make(shape, kFp16);
      drop.y_stats = bench.Stats();
      bench->Make(drop)->Forward(MakePass(44));
      UpdateSlot slot;
      slot.value = slot.gradient = bench.Vector(Normal(100000, 1, 3));
      const auto update = bench->MakeUpdate(UpdateRule{}, {slot}, {});
      update->Update(UpdatePlan{});
      const double norm = update->Outcome().norm;
      bytes.Add(sum.sum), bytes.Add(drop.y), bytes.Add(drop.y_stats);
      bytes.Add(&norm, sizeof norm);
    });
  }
}

}  // namespace ada::backend::test
