// Dumps hold what the step computed with: products redone from them by hand, and probes, whose
// truth is the dump of an fp32 run from the same seed.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "number/number_format.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;
using Values = std::vector<float>;

const std::string kWatched = std::string(kSmallNetwork) + R"(
seed: 3
device: {kind: cpu, threads: 2}
scaling: {policy: adaptive, init_scale: 0.25}
train: {max_steps: 4}
log: {every: 2, statistics: [y, w, dx, dw, dy], probe_every: 2, dump_every: 2}
)";

struct DumpFile {
  explicit DumpFile(const std::string& path) : file(SafetensorsFile::Open(path)) {}
  Values operator[](const std::string& name) const { return file.ReadF32(name); }
  double ScaleOf(const std::string& name) const {
    return std::stod(file.metadata().at("scale:" + name));
  }
  SafetensorsFile file;
};

// Sums of what the probe compares, over one tensor.
struct Sums {
  double error = 0, truth = 0;
  std::int64_t nonzero = 0, lost = 0, n = 0;
};
Sums SumsOf(const Values& run, double scale, const Values& truth) {
  Sums s;
  REQUIRE(run.size() == truth.size());
  for (std::size_t i = 0; i < run.size(); ++i) {
    const double t = truth[i], e = static_cast<double>(run[i]) / scale - t;
    s.error += e * e, s.truth += t * t;
    s.nonzero += t != 0, s.lost += t != 0 && run[i] == 0;
    ++s.n;
  }
  return s;
}

double Field(const GoldenRow& row, const std::string& name) { return std::stod(row.at(name)); }

TEST_SUITE("cpu") {
  TEST_CASE("a linear layer's dump: y and dw follow from x, w and dy") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "run", kWatched), folder.path()), 0);
    const DumpFile dump(folder / "run/dump/step-00000001.safetensors");
    const TensorEntry* entry = dump.file.Find("fc.dy");
    REQUIRE(entry != nullptr);
    CHECK(entry->shape == std::vector<std::int64_t>{20, 10});
    const Values x = dump["fc.x"], w = dump["fc.w"], y = dump["fc.y"];
    const Values dy = dump["fc.dy"], dw = dump["fc.dw"];
    const std::size_t in = w.size() / 10;
    CHECK(dump.file.Find("fc.x")->shape ==
          std::vector<std::int64_t>{20, 8, 5, 5});  // spatial: flattened in PyTorch's order
    CHECK(dy == dump["loss.dx"]);
    CHECK(dump.ScaleOf("fc.dy") == 0.25);
    double worst_y = 0, worst_dw = 0, largest_dw = 0;
    for (std::size_t n = 0; n < 20; ++n)
      for (std::size_t o = 0; o < 10; ++o) {
        double sum = 0;
        for (std::size_t k = 0; k < in; ++k) sum += double{x[n * in + k]} * double{w[o * in + k]};
        const double unit = 0x1p-10 * std::max(std::fabs(sum), 1.0);  // at least fp16's spacing
        worst_y = std::max(worst_y, std::fabs(sum - y[n * 10 + o]) / unit);  // the bias is zero
      }
    for (std::size_t o = 0; o < 10; ++o)
      for (std::size_t k = 0; k < in; ++k) {
        double sum = 0;
        for (std::size_t n = 0; n < 20; ++n) sum += double{dy[n * 10 + o]} * double{x[n * in + k]};
        worst_dw = std::max(worst_dw, std::fabs(sum / 0.25 - dw[o * in + k]));
        largest_dw = std::max(largest_dw, std::fabs(sum / 0.25));
      }
    CHECK(worst_y < 0.51);
    CHECK(worst_dw < 1e-5 * largest_dw);
    for (const char* name : {"conv2.dx", "relu1.dy", "bn1.dy", "join.y", "drop.x"})
      CHECK_MESSAGE(dump.file.Find(name) != nullptr, name);
    CHECK(dump["bn1.dy"] != dump["relu1.dy"]);
    CHECK(dump["relu2.dx"] == dump["join.dy"]);
  }

  // relu1 feeds conv2, which brings its gradient down to S = 8, and `join`, whose gradient has 32.
  TEST_CASE("reference: branches are summed as they are, except under approx_range") {
    const TempFolder folder;
    const auto branches_of = [&](const std::string& name, const std::string& layers) {
      const Arguments arguments =
          With(WriteConfig(folder, name, kWatched),
               {"--set",
                "scaling={policy: adaptive, reference: true, init_scale: 8, method: fixed, "
                "scale: 4, layers: [{match: conv2, scale: 0.25}" +
                    layers + "]}"});
      ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
      const Table rows = RowsWhere(ReadCsv(folder / (name + "/scales.csv")), "layer", "relu1");
      REQUIRE(!rows.empty());
      CHECK(Field(rows[0], "scale_out") == (layers.empty() ? 8 : 32));
      return DumpFile(folder / (name + "/dump/step-00000001.safetensors"));
    };
    const DumpFile as_they_are = branches_of("fixed", "");
    const DumpFile rescaled = branches_of("mixed", ", {match: relu1, method: approx_range}");
    for (const DumpFile* dump : {&as_they_are, &rescaled}) {
      REQUIRE(dump->ScaleOf("conv2.dx") == 8);
      REQUIRE(dump->ScaleOf("join.dy") == 32);
      const float factor = dump == &rescaled ? 4 : 1;
      CHECK(dump->ScaleOf("relu1.dy") == static_cast<double>(8 * factor));
      Values want = (*dump)["conv2.dx"];
      const Values shortcut = (*dump)["join.dy"];
      for (std::size_t i = 0; i < want.size(); ++i)
        want[i] = RoundTo(kFp16, RoundTo(kFp16, factor * want[i]) + shortcut[i]);
      CHECK((*dump)["relu1.dy"] == want);
    }
  }

  TEST_CASE("a probe's errors are those against an fp32 run of the same step") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "run", kWatched), folder.path()), 0);
    const Arguments fp32 =
        With(WriteConfig(folder, "fp32", kWatched),
             {"--set", "precision.format=fp32", "--set", "scaling={policy: none}"});
    ADA_REQUIRE_EXIT(Run(fp32, folder.path()), 0);
    const DumpFile run(folder / "run/dump/step-00000001.safetensors");
    const DumpFile truth(folder / "fp32/dump/step-00000001.safetensors");
    const Table probes = RowsWhere(ReadCsv(folder / "run/probes.csv"), "step", "1");
    Table rows = RowsWhere(ReadCsv(folder / "run/underflow.csv"), "step", "1");
    REQUIRE(rows.front().at("layer") == "input");  // the images, which a probe has too
    rows.erase(rows.begin());
    REQUIRE(probes.size() == rows.size());
    REQUIRE(probes.size() == 19);  // 6 y, 3 w, 3 dw, 6 dx, 1 dy
    std::int64_t lost = 0;
    for (std::size_t i = 0; i < probes.size(); ++i) {
      const GoldenRow& row = probes[i];
      const std::string name = row.at("layer") + "." + row.at("tensor");
      CAPTURE(name);
      const Sums s = SumsOf(run[name], run.ScaleOf(name), truth[name]);
      CHECK(std::stoll(row.at("numel")) == s.n);
      CHECK(std::stoll(row.at("nonzero")) == s.nonzero);
      CHECK(std::stoll(row.at("lost")) == s.lost);
      const double mse = s.error / static_cast<double>(s.n);
      CHECK(Field(row, "mse") == doctest::Approx(mse).epsilon(1e-8));
      if (s.error > 0)
        CHECK(Field(row, "sqnr_db") ==
              doctest::Approx(10 * std::log10(s.truth / s.error)).epsilon(1e-8));
      CHECK(rows[i].at("mse") == row.at("mse"));
      CHECK(rows[i].at("sqnr_db") == row.at("sqnr_db"));
      lost += s.lost;
    }
    CHECK(lost > 0);
    CHECK(RowsWhere(ReadCsv(folder / "run/probes.csv"), "step", "3").empty());
  }

  TEST_CASE("an embedding's dump holds its rounded weight, whose rows are its output; its probe") {
    const TempFolder folder;
    WriteBytes(folder / "text.txt", std::string(500, 'a') + std::string(500, 'b'));
    const Arguments run = WriteConfig(folder, "run", R"(
task: language
data: {dataset: text, path: text.txt, context: 8, batch_size: 4}
model: {zoo: gpt2, layers: 1, heads: 1, width: 16}
precision: {format: fp8_e4m3}
train: {max_steps: 1}
log: {every: 1, statistics: [y, w, dx, dw, operands], probe_every: 1, dump_every: 1}
)");
    ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
    const DumpFile dump(folder / "run/dump/step-00000001.safetensors");
    REQUIRE(dump.file.Find("transformer.wte.w") != nullptr);
    CHECK(dump.file.Find("transformer.wte.w")->shape == std::vector<std::int64_t>{256, 16});
    const Values w = dump["transformer.wte.w"], y = dump["transformer.wte.y"];
    REQUIRE(y.size() == 4 * 8 * 16);
    const std::set<float> stored(y.begin(), y.end());
    std::set<float> rows;  // of the two tokens
    for (const char token : {'a', 'b'})
      for (std::size_t k = 0; k < 16; ++k) rows.insert(w[static_cast<std::size_t>(token) * 16 + k]);
    CHECK(std::includes(rows.begin(), rows.end(), stored.begin(), stored.end()));
    const Table all = ReadCsv(folder / "run/probes.csv");
    // What exists only within attention is compared with nothing.
    for (const char* tensor : {"p", "ds", "forward.x"})
      CHECK(RowsWhere(all, "tensor", tensor).empty());
    const Table probes = RowsWhere(all, "layer", "transformer.wte");
    CHECK(RowsWhere(probes, "tensor", "w").size() == 1);
    CHECK(RowsWhere(probes, "tensor", "dw").size() == 1);
  }

  TEST_CASE("probes, dumps and histograms change nothing of the run") {
    const TempFolder folder;
    const std::string text = std::string(kSmallNetwork) + kSmallRun;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "plain", text), folder.path()), 0);
    const Arguments watched =
        With(WriteConfig(folder, "watched", text),
             {"--set", "log.probe_every=3", "--set", "log.dump_every=3", "--set", "log.dump=[fc]",
              "--set", "log.histogram_every=3", "--set", "log.what_if=[{scale: 8}]", "--set",
              "log.tensorboard=true"});
    ADA_REQUIRE_EXIT(Run(watched, folder.path()), 0);
    for (const char* name : {"steps.csv", "scales.csv", "evaluation.csv", "events.csv"})
      CHECK_MESSAGE(ReadBytes(folder / ("plain/" + std::string(name))) ==
                        ReadBytes(folder / ("watched/" + std::string(name))),
                    name);
    const auto a = NewestCheckpoint(folder / "plain"), b = NewestCheckpoint(folder / "watched");
    CHECK(ReadBytes(a) == ReadBytes(b));
  }
}

}  // namespace
}  // namespace ada::testing
