// Sums of branches against the CPU's, bit for bit: targets, halvings, what moments and statistics
// tell, values that are not finite, the authors' way.
#include <doctest/doctest.h>

#include "cuda/on_both.h"

namespace ada::backend::test {
namespace {

struct Branch {
  Values values;  // repeated over the whole tensor
  float scale;
};
const Shape kShape = {5, 8, 30, 17};
constexpr float kInf = std::numeric_limits<float>::infinity();

struct SumCase {
  std::vector<Branch> branches;
  bool reference = false, rescale = true;
  bool moments = false, stats = false;  // told with the branches
  float per_tensor_scale = 0;           // of the sum's tensor
};

BranchSumSpec MakeSpec(Lab& lab, const SumCase& c, const NumberFormat& format) {
  BranchSumSpec spec;
  for (const Branch& b : c.branches) {
    Values values(static_cast<std::size_t>(kShape.numel()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = b.values[i % b.values.size()];
    Gradient g = lab.MakeGradient(kShape, format, b.scale, values);
    float largest = 0;
    for (const float v : b.values) largest = std::max(largest, std::fabs(v));
    TensorMoments moments;
    moments.min = -largest, moments.max = 1, moments.mean_square = largest;
    TensorStats stats;
    stats.max_abs = largest;
    g.moments = c.moments ? lab.Share(moments) : nullptr;
    g.stats = c.stats ? lab.Share(stats) : nullptr;
    spec.branches.push_back(g);
  }
  spec.sum = lab.MakeGradient(kShape, format);
  if (c.per_tensor_scale != 0) {
    spec.sum.tensor = lab.Make(kShape, format, {}, true);
    spec.sum.style.per_tensor_scale = lab.Share(scaling::TensorScaler{c.per_tensor_scale});
  }
  spec.decision = lab.Share<scaling::ScaleDecision>();
  spec.reference = c.reference, spec.rescale = c.rescale;
  return spec;
}

void Check(const SumCase& c, const NumberFormat& format, int rows = 5) {
  CAPTURE(FormatName(format));
  CAPTURE(c.branches[0].values[0]);
  CAPTURE(c.branches[0].scale);
  OnBoth([&](Lab& lab, Findings& findings) {
    const BranchSumSpec spec = MakeSpec(lab, c, format);
    const auto op = lab->Make(spec);
    for (const bool count : {true, false, false}) {
      Pass pass;
      pass.rows = rows, pass.count = count;
      op->Backward(pass);
      findings.Add("sum", lab, spec.sum);
      const auto d = lab.Fetched(spec.decision);
      findings.Numbers("decision",
                       {static_cast<double>(d.scale_in), static_cast<double>(d.scale_out),
                        static_cast<double>(d.limit), static_cast<double>(d.error),
                        static_cast<double>(d.halvings), static_cast<double>(d.alpha)});
    }
  });
}

const std::vector<std::vector<Branch>>& Pairs() {
  static const std::vector<std::vector<Branch>> pairs = {
      {{{1, 2}, 8}, {{3, -1}, 1024}},
      {{{3, -1}, 1024}, {{1, 2}, 8}},
      {{{512, 1}, 8}, {{1, 2}, 1024}},
      {{{511.5, 1}, 8}, {{1, 2}, 1024}},
      {{{8188, 1}, 8}, {{1, 0}, 64}},
      {{{0}, 8}, {{0}, 1024}},
      {{{0x1p-24f}, 1024}, {{512}, 8}},
      {{{1, 2}, 3}, {{1, -3}, 10}},
      {{{65504}, 8}, {{65504}, 16}},
      {{{1, 2, 3}, 8}, {{5, -4}, 8}, {{0.1f, 7}, 32}, {{3}, 2}},
      {{{1, 2, 3}, 64}}};
  return pairs;
}
const std::vector<std::vector<Branch>>& Overflows() {
  static const std::vector<std::vector<Branch>> all = {
      {{{40000, 1}, 8}, {{40000, 2}, 8}},
      {{{-40000, 1}, 8}, {{-40000, 2}, 8}},
      {{{32752, 1}, 8}, {{32752, 2}, 8}},
      {{{32752, 1}, 8}, {{32736, 2}, 8}},
      {{{60000, 1}, 8}, {{60000, 2}, 8}, {{60000, 3}, 8}},
      {{{60000, 1}, 8}, {{-60000, 2}, 8}},
      {{{40000, 1}, 8}, {{60000, 2}, 12}},
      {{{40000, 1}, 0x1p-121f}, {{40000, 2}, 0x1p-121f}}};
  return all;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("branches: targets in every format, looked for or told") {
    for (const Kind& kind : MainKinds())
      for (const std::vector<Branch>& branches : Pairs()) {
        Check({branches}, kind.format);
        Check({branches}, kind.format, 3);
        Check({branches, false, true, true}, kind.format);
        Check({branches, false, true, false, true}, kind.format);
      }
  }

  TEST_CASE("branches: the largest value is found wherever it lies") {
    // Neither eight nor four divides the number of values, of which several blocks look at parts.
    constexpr std::size_t kValues = 3 * 4096 + 7;
    const Shape shape = {1, 1, 1, kValues};
    for (const Kind& kind : MainKinds())
      for (const std::size_t where :
           {std::size_t{0}, std::size_t{4095}, std::size_t{8191}, kValues - 8, kValues - 1}) {
        CAPTURE(FormatName(kind.format));
        CAPTURE(where);
        OnBoth([&](Lab& lab, Findings& findings) {
          BranchSumSpec spec;
          for (const float scale : {8.0f, 1024.0f}) {
            Values values(kValues, 0.5f);
            values[where] = -48;
            Gradient g = lab.MakeGradient(shape, kind.format, scale, values);
            g.stats = nullptr, g.moments = nullptr;
            spec.branches.push_back(g);
          }
          spec.sum = lab.MakeGradient(shape, kind.format);
          spec.decision = lab.Share<scaling::ScaleDecision>();
          const auto op = lab->Make(spec);
          Pass pass;
          pass.rows = 1;
          op->Backward(pass);
          findings.Add("sum", lab, spec.sum);
        });
      }
  }

  TEST_CASE("branches: halved until the sum fits") {
    for (const std::vector<Branch>& branches : Overflows()) {
      Check({branches}, kFp16);
      Check({branches, false, true, true}, kFp16);
      Check({branches, false, true, false, true}, kFp16);
    }
    for (const NumberFormat& format : {kBf16, kFp32}) {
      Check({{{{3e38f, 1}, 8}, {{3e38f, 2}, 8}}}, format);
      Check({{{{3e38f, 1}, 8}, {{3e38f, 2}, 8}, {{3e38f, 2}, 8}, {{-3e38f, 2}, 8}}}, format);
    }
  }

  TEST_CASE("branches: a sum with a scale of its own") {
    for (const float own : {1.0f, 13.0f, 4096.0f}) {
      Check({Pairs()[0], false, true, false, false, own}, kFp8E5M2);
      Check({{{{3e38f, 1}, 8}, {{3e38f, 2}, 8}}, false, true, false, false, own}, kFp8E5M2);
    }
    for (const bool stats : {false, true})  // the sum times its scale leaves fp32
      Check({{{{0x1p30f, 1}, 8}, {{0x1p30f, 2}, 4}}, false, true, false, stats, 0x1p100f}, kBf16);
  }

  TEST_CASE("branches: what is not finite passes through") {
    for (const float bad : {kInf, -kInf, std::nanf("")})
      for (const float scale : {8.0f, 1024.0f}) {
        Check({{{{1, 2, bad, 65504}, 8}, {{1, 2, 3, 4}, scale}}}, kFp16);
        Check({{{{65504, 1}, 8}, {{65504, 1}, scale}, {{bad, 1}, 8}}}, kFp16);
      }
  }

  TEST_CASE("branches: the authors' way") {
    for (const NumberFormat& format : {kFp16, kFp32})
      for (const std::vector<std::vector<Branch>>& all : {Pairs(), Overflows()})
        for (const std::vector<Branch>& branches : all)
          for (const bool rescale : {true, false}) {
            Check({branches, true, rescale}, format);
            Check({branches, true, rescale, true}, format);
          }
    Check({{{{1, std::nanf("")}, 8}, {{1}, 16}}, true}, kFp16);
  }
}

}  // namespace ada::backend::test
