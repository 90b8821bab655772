// Branch points against recordings of the authors' program: the common scale, the rescaled
// gradients and their sum.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "golden_table.h"
#include "io/tensor_files/safetensors.h"
#include "scaling/rules/rules.h"
#include "tensor_statistics.h"

namespace ada::scaling {
namespace {

using testing::GoldenRow;
using testing::RecordedTensor;

struct Branches {
  std::vector<RecordedTensor> gradients;
  std::vector<float> scales;
  float largest = 0;  // max |g| / S as the original takes it
};

float LargestOf(const RecordedTensor& gradient) {
  float largest = 0;
  for (const float value : gradient.values) {
    if (std::isnan(value)) return value;
    largest = std::fmax(largest, std::fabs(value));
  }
  return largest;
}

Branches ReadBranches(const SafetensorsFile& file, const GoldenRow& row) {
  Branches branches;
  std::vector<float> magnitudes;
  for (const std::string& word : testing::Words(row.at("scales"))) {
    const std::string name = row.at("case") + ".g" + std::to_string(branches.scales.size());
    branches.gradients.push_back(testing::ReadTensor(file, name));
    branches.scales.push_back(std::stof(word));
    magnitudes.push_back(LargestOf(branches.gradients.back()));
  }
  branches.largest = BranchLargestReference(magnitudes.data(), branches.scales.data(),
                                            static_cast<int>(magnitudes.size()));
  return branches;
}

bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Each product and each addition rounded to the gradients' type, left to right.
void CheckSum(const SafetensorsFile& file, const std::string& name, const Branches& branches,
              float target) {
  const RecordedTensor sum = testing::ReadTensor(file, name + ".sum");
  std::vector<double> total(sum.values.size());
  for (std::size_t i = 0; i < branches.gradients.size(); ++i) {
    const bool fp16 = branches.gradients[i].fp16;
    const auto rounded = [fp16](double x) {
      return fp16 ? RoundToHalf(x) : static_cast<double>(static_cast<float>(x));
    };
    const float factor = BranchFactorReference(target, branches.scales[i], fp16);
    const RecordedTensor rescaled =
        testing::ReadTensor(file, name + ".rescaled" + std::to_string(i));
    int differing = 0;
    for (std::size_t j = 0; j < total.size(); ++j) {
      const double value = rounded(double{branches.gradients[i].values[j]} * factor);
      differing += !Same(value, rescaled.values[j]);
      total[j] = rounded(i == 0 ? value : total[j] + value);
    }
    CHECK(differing == 0);
  }
  int differing = 0;
  for (std::size_t j = 0; j < total.size(); ++j) differing += !Same(total[j], sum.values[j]);
  CHECK(differing == 0);
}

TEST_SUITE("cpu") {
  TEST_CASE("recorded branch points") {
    const SafetensorsFile file = SafetensorsFile::Open(
        std::string(ADA_SOURCE_DIR) + "/tests/golden/adaptive/rescaling.safetensors");
    int targets = 0, errors = 0, as_they_are = 0;
    for (const GoldenRow& row : testing::ReadGolden("adaptive/rescaling.csv").rows) {
      CAPTURE(row.at("case"));
      if (row.at("method") != "approx_range") {  // the original sums without rescaling there
        CHECK(row.at("target").empty());
        ++as_they_are;
        continue;
      }
      const Branches branches = ReadBranches(file, row);
      const float* scales = branches.scales.data();
      const int count = static_cast<int>(branches.scales.size());
      const float theirs = BranchTargetReference(scales, count, branches.largest, 65504);
      if (std::isfinite(
              branches.largest)) {  // ours: the same where there is one, else one that fits
        const float ours = BranchTarget(scales, count, branches.largest, 65504);
        CHECK(double{branches.largest} * ours < 65504);
        CHECK((std::isnan(theirs) || ours == theirs));
      }
      CHECK(std::isnan(theirs) == !row.at("error").empty());
      if (std::isnan(theirs)) {
        ++errors;
        continue;
      }
      CHECK(theirs == static_cast<float>(testing::Number(row, "target")));
      CheckSum(file, row.at("case"), branches, theirs);
      ++targets;
    }
    CHECK(targets == 26);
    CHECK(errors == 3);
    CHECK(as_they_are == 2);
  }
}

}  // namespace
}  // namespace ada::scaling
