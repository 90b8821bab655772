// `ada-train inspect --csv scales` on the recorded tensors of the authors' program: with
// `reference: true` it chooses what that program chose, errors included.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "golden_table.h"
#include "study/tensor_file.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

std::string GoldenPath(const std::string& group) {
  return std::string(ADA_SOURCE_DIR) + "/tests/golden/adaptive/" + group + ".safetensors";
}

// A file with the call's tensors alone, named as a layer.
void WriteLayer(const TempFolder& folder, const GoldenRow& row) {
  const ParsedFile recorded = ParseTensorFile(ReadBytes(GoldenPath(row.at("group"))));
  std::vector<RawTensor> tensors = {recorded.Get(row.at("dy"))};
  tensors[0].name = "layer.dy";
  if (!row.at("w").empty()) tensors.push_back(recorded.Get(row.at("w")));
  tensors.back().name = tensors.size() == 1 ? "layer.dy" : "layer.w";
  folder.Write("layer.safetensors", TensorFile(tensors));
}

// The recorded settings as keys. The original has a switch for its bounds and takes inf for them.
std::vector<std::string> Settings(const GoldenRow& row) {
  const bool lognormal = row.at("method") == "approx_range+lognormal";
  const auto bound = [&](const char* column) {
    const bool none = row.at("use_bound") == "0" || row.at(column) == "inf";
    return none ? std::string("1e300") : row.at(column);
  };
  std::vector<std::string> keys = {
      "scaling.reference=true",
      "scaling.method=" + (lognormal ? "lognormal" : row.at("method")),
      "scaling.underflow_target=" + row.at("n_uf"),
      "scaling.u_min=" + row.at("u_min"),
      "scaling.scale_upper_bound=" + bound("SB"),
      "scaling.accum_upper_bound=" + bound("AB"),
      std::string("scaling.power_of_two=") + (row.at("power_of_two") == "1" ? "true" : "false"),
      "scaling.update_interval=" + row.at("update_interval"),
  };
  if (row.at("method") == "fixed") keys.push_back("scaling.scale=" + row.at("fixed"));
  return keys;
}

// Equal words (empty, inf, nan), or numbers within `tolerance`.
bool Agree(const GoldenRow& ours, const std::string& column, const GoldenRow& recorded,
           const std::string& recorded_column, double tolerance) {
  const std::string &a = ours.at(column), &b = recorded.at(recorded_column);
  if (a == b) return true;
  if (a.empty() || b.empty()) return false;
  const double x = Number(ours, column), y = Number(recorded, recorded_column);
  return std::fabs(x - y) <= tolerance * std::fabs(y);
}

TEST_SUITE("cpu") {
  TEST_CASE("every recorded decision that looks at its tensors") {
    const TempFolder folder;
    int calls = 0, errors = 0;
    for (const GoldenRow& row : ReadGolden("adaptive/pipeline.csv").rows) {
      if (row.at("updating") != "1") continue;  // a cached value: the file says nothing of it
      CAPTURE(row.at("case"));
      CAPTURE(row.at("call"));
      WriteLayer(folder, row);
      std::vector<std::string> arguments = {"inspect",    "layer.safetensors", "--csv", "scales",
                                            "--scale-in", row.at("S_prev"),    "--set"};
      const Outcome o = Run(With(arguments, Settings(row)), folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      folder.Write("scales.csv", o.out);
      const Table table = ReadCsv(folder / "scales.csv");
      REQUIRE(table.size() == 1);
      const GoldenRow& ours = table[0];
      const double tolerance = row.at("method") == "approx_range+lognormal" ? 2e-5 : 3e-6;
      CHECK(Agree(ours, "unbound", row, "unbound", tolerance));
      if (row.at("use_bound") == "1") CHECK(Agree(ours, "bound", row, "bound", tolerance));
      CHECK(Agree(ours, "pow2", row, "pow2", 0));
      CHECK(Agree(ours, "alpha", row, "alpha", 0));
      CHECK(Agree(ours, "scale_out", row, "S_out", 0));
      if (!row.at("fan").empty()) CHECK(ours.at("fan") == row.at("fan"));
      CHECK(ours.at("error").empty() == row.at("error").empty());
      ++calls;
      errors += !ours.at("error").empty();
    }
    CHECK(calls == 154);
    CHECK(errors > 10);
  }
}

}  // namespace
}  // namespace ada::testing
