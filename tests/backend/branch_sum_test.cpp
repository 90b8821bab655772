// Where gradients of several branches meet (src/scaling/README.md): one scale, one sum in fp32, one
// rounding.
#include <doctest/doctest.h>

#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

struct Branch {
  Values values;  // repeated over the whole tensor
  float scale;
};
const Shape kShape = {5, 8, 30, 17};  // blocks of 4 images
constexpr int kRows = 5;

struct BranchBench {
  BranchBench(const NumberFormat& format, const std::vector<Branch>& branches) {
    for (const Branch& b : branches) {
      Values values(static_cast<std::size_t>(kShape.numel()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = b.values[i % b.values.size()];
      spec.branches.push_back(bench.MakeGradient(kShape, format, values, b.scale));
      spec.branches.back().moments = nullptr;  // the op looks for the largest itself
      spec.branches.back().stats = nullptr;
    }
    spec.sum = bench.MakeGradient(kShape, format);
    spec.decision = &decision;
  }
  void Run(int rows = kRows) { bench->Make(spec)->Backward(MakePass(rows)); }
  // The fp32 sums at scale `target`, left to right.
  Values Before(float target, int rows = kRows) const {
    Values sum(static_cast<std::size_t>(rows * kShape.per_image()));
    for (std::size_t k = 0; k < spec.branches.size(); ++k) {
      const Values g = Bench::Get(spec.branches[k].tensor);
      const float factor = target / *spec.branches[k].scale;
      for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] = k == 0 ? g[i] * factor : sum[i] + g[i] * factor;
    }
    return sum;
  }
  void Check(float target, int halvings) {
    const Values before = Before(target);
    CHECK(*spec.sum.scale == target);
    CheckEqual(spec.sum.tensor, RoundAll(spec.sum.tensor.format, before));
    CheckStats(*spec.sum.stats, spec.sum.tensor.format, before);
    CHECK(decision.limit == scaling::Limit::kBranch);
    CHECK(decision.halvings == halvings);
    CHECK(decision.scale_out == target);
  }
  Bench bench;
  BranchSumSpec spec;
  scaling::ScaleDecision decision;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("branches: equal scales are summed as they are, in order") {
    for (const Kind& kind : MainKinds())
      for (const std::size_t count : {2u, 3u}) {
        CAPTURE(kind.name);
        std::vector<Branch> branches;
        for (std::size_t k = 0; k < count; ++k)
          branches.push_back({Spread({4, 10, 7, true}, 1009, k), 64});
        BranchBench b(kind.format, branches);
        b.Run();
        b.Check(64, 0);
        CheckMoments(*b.spec.sum.moments, Bench::Get(b.spec.sum.tensor));
      }
  }

  TEST_CASE("branches: the first scale, from the largest, at which every branch fits") {
    struct Case {
      const char* what;
      Branch a, b;
      float target;
    };
    const float tiny = 0x1p-24f;
    const Case cases[] = {{"small values: the larger scale", {{1, 2}, 8}, {{3, -1}, 1024}, 1024},
                          {"in the other order", {{3, -1}, 1024}, {{1, 2}, 8}, 1024},
                          {"512 * 128 = 65536 does not fit", {{512, 1}, 8}, {{1, 2}, 1024}, 8},
                          {"511.5 * 128 = 65472 fits", {{511.5, 1}, 8}, {{1, 2}, 1024}, 1024},
                          {"a negative extreme counts", {{-512, 1}, 8}, {{1, 2}, 1024}, 8},
                          {"strictly below the largest value", {{8188, 1}, 8}, {{1, 0}, 64}, 8},
                          {"a branch of zeros", {{0}, 8}, {{0}, 1024}, 1024},
                          {"what underflows at the smaller scale", {{tiny}, 1024}, {{512}, 8}, 8},
                          {"scales that are no powers of two", {{1, 2}, 3}, {{1, -3}, 10}, 10},
                          {"none fits: halved", {{65504}, 8}, {{65504}, 16}, 4}};
    for (const Case& c : cases) {
      CAPTURE(c.what);
      BranchBench b(kFp16, {c.a, c.b});
      b.Run();
      b.Check(c.target, 0);
    }
  }

  TEST_CASE("branches: moments that are handed over decide like those taken here") {
    BranchBench own(kFp16, {{{512, 1}, 8}, {{1, 2}, 1024}}), given(kFp16, {{{1, 1}, 8}, {{1}, 16}});
    own.Run();
    CHECK(*own.spec.sum.scale == 8);
    TensorMoments small, large;
    small.min = -1, small.max = 1, small.mean_square = 1;
    large.min = -30000, large.max = 2, large.mean_square = 4;
    given.spec.branches[0].moments = &large, given.spec.branches[1].moments = &small;
    given.Run();
    CHECK(*given.spec.sum.scale == 16);
    large.min = -33000;
    given.Run();
    CHECK(*given.spec.sum.scale == 8);
  }

  TEST_CASE("branches: where a rounding to nearest told the largest, it is not looked for") {
    BranchBench b(kFp16, {{{1, 1}, 8}, {{1}, 16}});
    TensorStats small, large;
    small.max_abs = 1, large.max_abs = 32740;
    b.spec.branches[0].stats = &large, b.spec.branches[1].stats = &small;
    b.Run();
    CHECK(*b.spec.sum.scale == 16);
    large.max_abs = 32745;  // rounds to 32752: twice that does not fit
    b.Run();
    CHECK(*b.spec.sum.scale == 8);
    large.max_abs = 65520;  // became infinite
    b.Run();
    CHECK(*b.spec.sum.scale == 8);
    b.spec.branches[0].style.stochastic = true;  // might have become anything: the values are ones
    b.Run();
    CHECK(*b.spec.sum.scale == 16);
  }

  TEST_CASE("branches: the target is halved until the sum fits") {
    struct Case {
      std::vector<Branch> branches;
      float target;
      int halvings;
    };
    const Case cases[] = {
        {{{{40000, 1}, 8}, {{40000, 2}, 8}}, 4, 1},
        {{{{-40000, 1}, 8}, {{-40000, 2}, 8}}, 4, 1},
        {{{{32752, 1}, 8}, {{32752, 2}, 8}}, 4, 1},  // 65504 itself is reached
        {{{{32752, 1}, 8}, {{32736, 2}, 8}}, 8, 0},
        {{{{60000, 1}, 8}, {{60000, 2}, 8}, {{60000, 3}, 8}}, 2, 2},
        {{{{60000, 1}, 8}, {{-60000, 2}, 8}}, 8, 0},
        {{{{40000, 1}, 8}, {{60000, 2}, 12}}, 6, 1}};  // 40000 * 12 / 8 = 60000 fits, 120000 not
    for (const Case& c : cases) {
      CAPTURE(c.branches[0].values[0]);
      CAPTURE(c.branches[1].values[0]);
      BranchBench b(kFp16, c.branches);
      b.Run();
      b.Check(c.target, c.halvings);
    }
  }

  TEST_CASE("branches: a sum beyond fp32 is halved too") {
    BranchBench b(kBf16, {{{3e38f, 1}, 8}, {{3e38f, 2}, 8}});
    b.Run();
    b.Check(4, 1);
    BranchBench fp32(kFp32, {{{3e38f, 1}, 8}, {{3e38f, 2}, 8}});
    fp32.Run();
    fp32.Check(4, 1);
  }

  // No scale of the loss helps there: the values fit, but not times the per-tensor scale.
  TEST_CASE("branches: a sum that outgrew its per-tensor scale saturates, nothing is halved") {
    NumberFormat saturating = kBf16;
    saturating.saturate = true;
    for (const float first : {8.0f, 4.0f}) {
      CAPTURE(first);
      BranchBench b(kBf16, {{{0x1p30f, 1}, first}, {{0x1p30f, 2}, 8}});
      scaling::TensorScaler own{0x1p100f};
      b.spec.sum.tensor = b.bench.MakeF32(kShape, saturating);
      b.spec.sum.style.per_tensor_scale = &own;
      b.Run();
      CHECK(*b.spec.sum.scale == 8);
      CHECK(b.decision.halvings == 0);
      const float largest = 0x1p30f * (8 / first) + 0x1p30f;
      CHECK(b.spec.sum.stats->max_abs == largest);
      CHECK(b.spec.sum.stats->overflow == kShape.numel() / 2);
      CHECK(b.spec.sum.stats->inf == 0);
      CHECK(Bench::Get(b.spec.sum.tensor)[0] == static_cast<float>(kBf16.largest()) / own.scale);
    }
  }

  TEST_CASE("branches: what is not finite passes through, nothing is halved") {
    const float inf = std::numeric_limits<float>::infinity();
    for (const float bad : {inf, -inf, std::nanf("")})
      for (const float scale : {8.0f, 1024.0f}) {
        CAPTURE(bad);
        CAPTURE(scale);
        BranchBench b(kFp16, {{{1, 2, bad, 65504}, 8}, {{1, 2, 3, 4}, scale}});
        b.Run();
        CHECK(*b.spec.sum.scale == 8);
        CHECK(b.decision.halvings == 0);
        CHECK(!std::isfinite(Bench::Get(b.spec.sum.tensor)[2]));
        CHECK(b.spec.sum.stats->inf + b.spec.sum.stats->nan > 0);
      }
    BranchBench own(kFp16, {{{65504, 1}, 8}, {{65504, 1}, 8}, {{inf, 1}, 8}});
    own.Run();
    CHECK(*own.spec.sum.scale == 8);
  }

  TEST_CASE("branches: rows beyond the batch neither count nor change") {
    BranchBench b(kFp16, {{{1}, 8}, {{1}, 1024}});
    Values first = Bench::Get(b.spec.branches[0].tensor);
    for (std::size_t i = static_cast<std::size_t>(3 * kShape.per_image()); i < first.size(); ++i)
      first[i] = 60000;  // would forbid 1024
    Bench::Set(b.spec.branches[0].tensor, first);
    b.Run(3);
    CHECK(*b.spec.sum.scale == 1024);
    Values want = RoundAll(kFp16, b.Before(1024, 3));
    CHECK(b.spec.sum.stats->numel == static_cast<std::int64_t>(want.size()));
    want.resize(first.size());
    CheckEqual(b.spec.sum.tensor, want);
  }
}

}  // namespace ada::backend::test
