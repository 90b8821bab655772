// Batch norm against its definition in double: alone, with relu, with the residual sum; training,
// evaluation, running averages, gradients.
#include <doctest/doctest.h>

#include "backend/naive_batch_norm.h"
#include "backend/naive_count.h"

namespace ada::backend::test {
namespace {

// Mean and variance carry the fp32 sums of a block, x - mean and two products a rounding each.
constexpr double kError = 0x1p-20;

// Ranges of what may be stored: y rounded, then the sum rounded, then relu; each step keeps order.
std::vector<Range> Outputs(const BatchNormSpec& spec, const Sums& y) {
  const Values addend = spec.addend ? Bench::Get(spec.addend) : Values{};
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < y.size(); ++i) {
    Range r = Rounded(spec.out.format, y[i], kError);
    if (spec.addend) {
      const auto a = static_cast<double>(addend[i]);
      r = Rounded(spec.out.format, static_cast<double>(r.low) + a, static_cast<double>(r.high) + a);
    }
    if (spec.relu) r = {std::max(r.low, 0.0f), std::max(r.high, 0.0f)};
    ranges.push_back(r);
  }
  return ranges;
}
void CheckOutputs(const BatchNormSpec& spec, const Sums& y) {
  const std::vector<Range> want = Outputs(spec, y);
  const Values got = Bench::Get(spec.out);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    wrong += i < want.size() ? !want[i].Holds(got[i]) : got[i] != 0;
  CHECK(wrong == 0);
}
Values Masked(const BatchNormSpec& spec, Values dy, std::size_t size) {
  const Values out = Bench::Get(spec.out);
  for (std::size_t i = 0; i < size; ++i)
    if (spec.relu && !(out[i] > 0)) dy[i] = 0;
  return dy;
}

void CheckTraining(const BatchNormCase& c, const NumberFormat& format) {
  CAPTURE(c.name);
  CAPTURE(FormatName(format));
  constexpr float kScale = 16;
  Bench bench;
  BatchNormBench b(bench, c, format, kScale);
  const BatchNormSpec& spec = b.spec;
  const Values old_mean = Bench::Get(spec.running_mean), old_var = Bench::Get(spec.running_var);
  const Values dy = Bench::Get(spec.dy.tensor);
  const std::unique_ptr<Op> op = bench->Make(spec);
  const Pass pass = MakePass(c.rows);
  op->Forward(pass);
  NaiveBatchNorm naive(spec, c.rows, true);
  CheckOutputs(spec, naive.Y());
  for (std::size_t k = 0; k < old_mean.size(); ++k) {
    const ChannelTruth& t = naive.truth()[k];
    CHECK(Near(static_cast<double>(spec.running_mean.f32()[k]),
               0.9 * static_cast<double>(old_mean[k]) + 0.1 * t.mean, 1e-6));
    CHECK(Near(static_cast<double>(spec.running_var.f32()[k]),
               0.9 * static_cast<double>(old_var[k]) + 0.1 * t.unbiased_var, 3e-6));
  }
  op->Backward(pass);
  const Values masked = Masked(spec, dy, static_cast<std::size_t>(c.rows * c.x.per_image()));
  CheckEqual(spec.dy.tensor, masked);
  CheckTensor(spec.dx.tensor, naive.Dx(masked), kError);
  CheckTensor(spec.dgamma, naive.Dgamma(static_cast<double>(kScale)), kError);
  CheckTensor(spec.dbeta, naive.Dbeta(static_cast<double>(kScale)), kError);
  CHECK(*spec.dx.scale == kScale);
  CHECK(spec.y_stats->numel == c.rows * c.x.per_image());
  CHECK(spec.dx.stats->numel == c.rows * c.x.per_image());
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("batch norm: training, all shapes and formats, alone and with what follows") {
    for (BatchNormCase c : BatchNormCases())
      for (const Kind& kind : MainKinds()) {
        CheckTraining(c, kind.format);
        c.addend = !c.addend;
        CheckTraining(c, kind.format);
        c.relu = !c.relu;
      }
  }

  TEST_CASE("batch norm: evaluation uses the running averages and leaves them") {
    for (const BatchNormCase& c : BatchNormCases())
      for (const Kind& kind : MainKinds()) {
        CAPTURE(c.name);
        CAPTURE(kind.name);
        Bench bench;
        BatchNormBench b(bench, c, kind.format, 1);
        b.spec.dy = b.spec.dx = Gradient{}, b.spec.dgamma = b.spec.dbeta = Tensor{};
        const Values mean = Bench::Get(b.spec.running_mean), var = Bench::Get(b.spec.running_var);
        Pass pass = MakePass(c.rows);
        pass.training = false;
        bench->Make(b.spec)->Forward(pass);
        CheckOutputs(b.spec, NaiveBatchNorm(b.spec, c.rows, false).Y());
        CheckEqual(b.spec.running_mean, mean);
        CheckEqual(b.spec.running_var, var);
      }
  }

  TEST_CASE("batch norm: accumulate adds to dgamma and dbeta") {
    const BatchNormCase c = BatchNormCases()[2];
    Bench bench;
    BatchNormBench b(bench, c, kFp16, 4);
    const std::unique_ptr<Op> op = bench->Make(b.spec);
    Pass pass = MakePass(c.rows);
    for (const bool accumulate : {false, true, true}) {
      pass.accumulate = accumulate;
      op->Forward(pass);
      op->Backward(pass);
    }
    NaiveBatchNorm naive(b.spec, c.rows, true);
    naive.Dx(Bench::Get(b.spec.dy.tensor));
    CheckTensor(b.spec.dgamma, naive.Dgamma(4.0 / 3), kError);
    CheckTensor(b.spec.dbeta, naive.Dbeta(4.0 / 3), kError);
  }

  TEST_CASE("batch norm: a channel that is not finite leaves its running averages alone") {
    const BatchNormCase c = BatchNormCases()[2];
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
      Bench bench;
      BatchNormBench b(bench, c, kFp16, 1);
      Values x = Bench::Get(b.spec.x);
      x[5 * 17 + 3] = bad;  // channel 3
      Bench::Set(b.spec.x, x);
      const Values mean = Bench::Get(b.spec.running_mean), var = Bench::Get(b.spec.running_var);
      bench->Make(b.spec)->Forward(MakePass(c.rows));
      for (std::size_t k = 0; k < 17; ++k) {
        CHECK((b.spec.running_mean.f32()[k] == mean[k]) == (k == 3));
        CHECK((b.spec.running_var.f32()[k] == var[k]) == (k == 3));
      }
      const Values out = Bench::Get(b.spec.out);
      CHECK(std::isnan(out[3]));
      CHECK(std::isfinite(out[4]));
    }
  }

  TEST_CASE("batch norm: a large mean costs no accuracy") {
    const BatchNormCase c = {"offset", {16, 16, 16, 16}, 16};
    Bench bench;
    BatchNormBench b(bench, c, kFp32, 1);
    Values x = Normal(static_cast<std::size_t>(c.x.numel()), 1, 1);
    for (float& v : x) v += 1000;
    Bench::Set(b.spec.x, x);
    bench->Make(b.spec)->Forward(MakePass(16));
    CheckOutputs(b.spec, NaiveBatchNorm(b.spec, 16, true).Y());
  }

  TEST_CASE("batch norm: no gradient for x, statistics of dx's rounding otherwise") {
    const BatchNormCase c = BatchNormCases()[3];
    Bench bench;
    BatchNormBench b(bench, c, kFp16, 1e-6f);
    const std::unique_ptr<Op> op = bench->Make(b.spec);
    op->Forward(MakePass(c.rows));
    Values small = Bench::Get(b.spec.dy.tensor);
    for (float& v : small) v *= 1e-6f;
    Bench::Set(b.spec.dy.tensor, small);
    op->Backward(MakePass(c.rows));
    Values dx = Bench::Get(b.spec.dx.tensor);
    dx.resize(static_cast<std::size_t>(c.rows * c.x.per_image()));
    const TensorStats& stats = *b.spec.dx.stats;
    CHECK(stats.zeros_after == std::count(dx.begin(), dx.end(), 0.0f));
    CHECK(stats.underflow > 0);
    CHECK(stats.subnormal == static_cast<std::int64_t>(dx.size()) - stats.zeros_after);
    CheckMoments(*b.spec.dx.moments, dx);
    b.spec.dx = Gradient{};
    const std::unique_ptr<Op> first = bench->Make(b.spec);
    first->Forward(MakePass(c.rows));
    first->Backward(MakePass(c.rows));
    CHECK(Bench::Get(b.spec.dbeta)[0] != 0);
  }
}

}  // namespace ada::backend::test
