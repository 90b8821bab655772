// scaling.batch_norm through the program: what it saves, where it shows, and that without it
// nothing changes.
#include <algorithm>
#include <string>
#include <vector>

#include "train/small_run.h"

namespace ada::testing {
namespace {

constexpr char kRest[] = R"(
name: small
seed: 7
precision: {format: fp16, gradients: fp8_e5m2}
train: {epochs: 3}
log: {every: 3, histogram_every: 6}
)";

// Trains under policy adaptive with these keys of `scaling` and returns the folder.
std::string Train(const TempFolder& folder, const std::string& name, const std::string& keys) {
  std::string network = kSmallNetwork;
  network.erase(network.find("precision:"), std::string("precision: {format: fp16}\n").size());
  const std::vector<std::string> arguments = WriteConfig(folder, name, network + kRest);
  ADA_REQUIRE_EXIT(
      Run(With(arguments, {"--set", "scaling={policy: adaptive, " + keys + "}"}), folder.path()),
      0);
  return folder / name;
}

// The mean share that bn1.dx lost in the logged steps after the first.
double Lost(const std::string& run) {
  double sum = 0;
  int rows = 0;
  for (const GoldenRow& row : RowsWhere(ReadCsv(run + "/underflow.csv"), "layer", "bn1")) {
    if (row.at("tensor") != "dx" || row.at("step") == "1") continue;
    sum += Number(row, "underflow_pct_nonzero");
    ++rows;
  }
  return sum / std::max(rows, 1);
}
Table Decisions(const std::string& run, const std::string& layer) {
  return RowsWhere(ReadCsv(run + "/scales.csv"), "layer", layer);
}

TEST_SUITE("cpu") {
  TEST_CASE("batch_norm: less of its dx underflows, and its decisions are logged") {
    const TempFolder folder;
    for (const std::string method : {"approx_range", "exact_range"}) {
      CAPTURE(method);
      const std::string keys = "method: " + method + ", init_scale: 0.0078125, batch_norm: ";
      const std::string off = Train(folder, "off_" + method, keys + "false");
      const std::string on = Train(folder, "on_" + method, keys + "true");
      CHECK(Lost(off) > 1);
      CHECK(Lost(on) < Lost(off) / 2);
      CHECK(Decisions(off, "bn1").empty());
      const Table made = Decisions(on, "bn1");
      REQUIRE(made.size() == Decisions(on, "fc").size());
      for (const GoldenRow& row : made)
        CHECK(Number(row, "scale_in") * Number(row, "alpha") == Number(row, "scale_out"));
      CHECK(Number(made.back(), "alpha") > 1);
    }
  }

  TEST_CASE("batch_norm: with init_scale: auto as well") {
    const TempFolder folder;
    const std::string run = Train(folder, "run", "init_scale: auto, batch_norm: true");
    CHECK(Decisions(run, "bn1").size() == Decisions(run, "fc").size());
  }

  TEST_CASE("batch_norm: entries of scaling.layers reach them; --dry-run names what they do") {
    const TempFolder folder;
    folder.Write("small.yaml", std::string(kSmallNetwork) + "train: {epochs: 1}\n");
    const auto table = [&](const std::string& keys) {
      return Run({"--config", "small.yaml", "--dry-run", "--set",
                  "scaling={policy: adaptive, " + keys + "}"},
                 folder.path())
          .out;
    };
    const auto line = [](const std::string& text, const std::string& layer) {
      const std::size_t at = text.find("\n" + layer + " ");
      return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    };
    CHECK(line(table("batch_norm: false"), "bn1").ends_with(" -"));
    CHECK(line(table("batch_norm: true"), "bn1").ends_with(" adaptive: approx_range"));
    CHECK(line(table("batch_norm: true, layers: [{match: 'bn*', method: fixed, scale: 4}]"), "bn1")
              .ends_with(" adaptive: fixed 4"));
  }

  TEST_CASE("batch_norm: off by default, and then no byte is another") {
    const TempFolder folder;
    const std::string without = Train(folder, "without", "update_interval: 2");
    const std::string off = Train(folder, "off", "update_interval: 2, batch_norm: false");
    CHECK(Differences(without, off) == std::vector<std::string>{});
    CHECK(Decisions(off, "bn1").empty());
  }

  TEST_CASE("batch_norm: what-if judges a run under it and without it") {
    const TempFolder folder;
    const std::string run = Train(folder, "run", "method: exact_range, init_scale: 0.0078125");
    const auto scales = [&](const std::string& batch_norm) {
      const Outcome o =
          Run({"what-if", "run", "--policy", "adaptive", "--set", "scaling.method=exact_range",
               "--set", "scaling.batch_norm=" + batch_norm},
              folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      WriteBytes(folder / "judged.csv", o.out);
      double bn = 0, pool = 0;
      for (const GoldenRow& row : ReadCsv(folder / "judged.csv")) {
        if (row.at("tensor") != "dx") continue;
        if (row.at("layer") == "bn1") bn = Number(row, "scale");
        if (row.at("layer") == "conv2") pool = Number(row, "scale");
      }
      return bn / pool;
    };
    CHECK(scales("true") > scales("false"));
  }
}

}  // namespace
}  // namespace ada::testing
