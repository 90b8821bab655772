// Where branches meet in the authors' program: sums as it recorded them, through the op under
// `reference`.
#include <doctest/doctest.h>

#include "backend/op_bench.h"
#include "backend/recorded.h"

namespace ada::backend::test {
namespace {

using ada::testing::GoldenRow;
using ada::testing::Number;

// Python's sums begin with a zero, so that none is -0: zeros are equal here.
void CheckSum(const BranchSumSpec& spec, Values want) {
  Values got = Bench::Get(spec.sum.tensor);
  for (float& v : got) v += 0.0f;
  for (float& v : want) v += 0.0f;
  CHECK(FirstDifference(got, want) == -1);
}

struct Branches {
  Branches(const Recorded& recorded, const GoldenRow& row) : prefix(row.at("case")) {
    const auto scales = ada::testing::Words(row.at("scales"));
    for (std::size_t i = 0; i < scales.size(); ++i) {
      const std::string name = prefix + ".g" + std::to_string(i);
      const TensorEntry& entry = *recorded.file.Find(name);
      const NumberFormat format = entry.dtype == DType::kF16 ? kFp16 : kFp32;
      shape = {1, 1, 1, entry.numel()};
      spec.branches.push_back(bench.MakeGradient(shape, format, recorded.file.ReadF32(name),
                                                 std::strtof(scales[i].c_str(), nullptr)));
      spec.branches.back().moments = nullptr, spec.branches.back().stats = nullptr;
    }
    spec.sum = bench.MakeGradient(shape, spec.branches[0].tensor.format);
    spec.decision = &decision;
    spec.reference = true;
    spec.rescale = row.at("method") == "approx_range";
  }
  void Run() { bench->Make(spec)->Backward(MakePass(1)); }
  // Branch `i` beside one of zeros that carries `target`, where that is chosen once more: the
  // rescaled branch itself. Returns whether it was.
  bool CheckAlone(std::size_t i, float target, const Values& want) {
    BranchSumSpec one = spec;
    one.branches = {spec.branches[i], bench.MakeGradient(shape, spec.sum.tensor.format, target)};
    one.branches[1].moments = nullptr, one.branches[1].stats = nullptr;
    one.sum = bench.MakeGradient(shape, spec.sum.tensor.format);
    bench->Make(one)->Backward(MakePass(1));
    if (*one.sum.scale != target) return false;
    CheckSum(one, want);
    return true;
  }
  std::string prefix;
  Shape shape;
  Bench bench;
  BranchSumSpec spec;
  scaling::ScaleDecision decision;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("reference: sums of branches as recorded") {
    const Recorded recorded("rescaling");
    CHECK(recorded.table.rows.size() >= 31);
    int alone = 0;
    for (const GoldenRow& row : recorded.table.rows) {
      CAPTURE(row.at("case"));
      CAPTURE(row.at("note"));
      Branches b(recorded, row);
      b.Run();
      if (!row.at("error").empty()) {
        CHECK(b.decision.error != scaling::DecisionError::kNone);
        continue;
      }
      CHECK(b.decision.error == scaling::DecisionError::kNone);
      CHECK(static_cast<double>(*b.spec.sum.scale) == Number(row, "sum_scale"));
      CheckSum(b.spec, recorded.file.ReadF32(b.prefix + ".sum"));
      for (std::size_t i = 0; i < b.spec.branches.size() && b.spec.rescale; ++i) {
        const Values want = recorded.file.ReadF32(b.prefix + ".rescaled" + std::to_string(i));
        alone += b.CheckAlone(i, *b.spec.sum.scale, want);
      }
    }
    CHECK(alone >= 25);
  }
}

}  // namespace ada::backend::test
