// `compare`: differences of configurations, tables, the place at which two runs part, on folders
// that are written by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "error.h"
#include "study/commands.h"
#include "study/compare/comparison.h"
#include "study/compared.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

using testing::Compared;
using testing::Has;
using testing::Section;
using testing::TempFolder;
using testing::Words;
using testing::WrittenRun;

config::Config Parsed(const std::string& yaml) {
  return config::LoadText("name: r\ndata: {dataset: mnist, path: nowhere}\n" + yaml, "test", {})
      .config;
}

TEST_SUITE("cpu") {
  TEST_CASE("configurations, key by key") {
    const std::string model = "model:\n  layers:\n    - {name: fc1, kind: linear, features: ";
    const config::Config a = Parsed("optimizer: {lr: 0.1}\nscaling: {policy: none}\n" + model +
                                    "20}\n" + "    - {name: fc2, kind: linear, features: 10}\n");
    const config::Config b =
        Parsed("optimizer: {lr: 0.2}\nscaling: {policy: fixed, scale: 8}\noutput: other\n" + model +
               "30}\n    - {name: relu, kind: relu}\n" +
               "    - {name: fc2, kind: linear, features: 10}\n");
    const auto text = [](const std::vector<KeyDifference>& differences, const std::string& key) {
      for (const KeyDifference& d : differences) {
        if (d.key == key) return d.a + " | " + d.b;
      }
      return std::string("equal");
    };
    const auto differences = ConfigDifferences(a, b);
    CHECK(text(differences, "optimizer.lr") == "0.1 | 0.2");
    CHECK(text(differences, "scaling.policy") == "none | fixed");
    CHECK(text(differences, "scaling.scale") == " | 8");
    CHECK(text(differences, "model.layers[fc1].features") == "20 | 30");
    CHECK(text(differences, "model.layers[relu].kind") == " | relu");
    CHECK(text(differences, "model.layers[fc2].features") == "equal");
    CHECK(text(differences, "output") == "equal");
    CHECK(text(ConfigDifferences(b, a), "scaling.scale") == "8 | ");
    CHECK(ConfigDifferences(a, a).empty());
    // In the order of the document: what only b has stands with its section.
    const auto at = [&](const std::string& key) {
      return std::find_if(differences.begin(), differences.end(),
                          [&](const KeyDifference& d) { return d.key == key; });
    };
    CHECK(at("model.layers[relu].kind") < at("scaling.policy"));
    CHECK(at("scaling.scale") < at("optimizer.lr"));
  }

  TEST_CASE("patterns without names are told apart by their place") {
    const config::Config a = Parsed(
        "model: {zoo: lenet}\noptimizer: {lr: 0.1}\nprecision:\n  format: fp16\n  layers:\n    - "
        "{match: fc, format: fp32}\n");
    const config::Config b = Parsed(
        "model: {zoo: lenet}\noptimizer: {lr: 0.1}\nprecision:\n  format: fp16\n  layers:\n    - "
        "{match: fc, format: bf16}\n");
    const auto differences = ConfigDifferences(a, b);
    REQUIRE(differences.size() == 1);
    CHECK(differences[0].key == "precision.layers[0].format");
    CHECK(differences[0].a == "fp32");
    CHECK(differences[0].b == "bf16");
  }

  TEST_CASE("equal runs") {
    const WrittenRun a, b;
    for (const WrittenRun* run : {&a, &b}) {
      run->Step(1, "2.5");
      run->Step(2, "2.25");
      run->Scale(1, "fc", "8", "cap");
      run->Tensor(1, "fc", "dx", "8", "0.5");
      run->Append("evaluation.csv", "2,1,test,500,0.75,0.5,0.875\n");
    }
    const auto lines = Compared(a, b);
    CHECK(Has(lines, "configuration: the same"));
    CHECK(Has(lines,
              "  The runs are equal in every row of steps.csv (2), scales.csv, "
              "underflow.csv,"));
    const auto results = Section(lines, "results");
    CHECK(Words(results[1]) == std::vector<std::string>{"status", "finished", "finished"});
    CHECK(Words(results[2]) == std::vector<std::string>{"steps", "2", "2", "0"});
  }

  TEST_CASE("the first step at which runs part") {
    const WrittenRun a, b("scaling: {policy: fixed, scale: 8}\n");
    for (const WrittenRun* run : {&a, &b}) {
      run->Step(1, "2.5");
      run->Tensor(1, "loss", "dx", "1", "0");
      run->Tensor(1, "fc", "dx", "1", "0");
      run->Scale(1, "fc", "1", "one");
    }
    a.Step(2, "2.25");
    a.Tensor(2, "loss", "dx", "1", "0");
    a.Tensor(2, "fc", "dx", "1", "1.5");
    a.Scale(2, "fc", "1", "one");
    b.Step(2, "2.125", "8", true);
    b.Tensor(2, "loss", "dx", "1", "0");
    b.Tensor(2, "fc", "dx", "8", "0.25");
    b.Scale(2, "fc", "8", "cap");
    b.Step(3, "2");
    const auto lines = Compared(a, b);
    CHECK(Section(lines, "rows") ==
          std::vector<std::string>{"  steps.csv parts at step 2", "    loss: A 2.25, B 2.125",
                                   "    also scale, overflow, skipped",
                                   "  scales.csv parts at step 2, layer fc", "    alpha: A 1, B 8",
                                   "    also scale_out, limit",
                                   "  underflow.csv parts at step 2, layer fc, tensor dx",
                                   "    scale: A 1, B 8", "    also underflow_pct_nonzero"});
    CHECK(Section(lines, "configuration: ").front() == "  key             A     B");
    const auto results = Section(lines, "results");
    CHECK(Words(results[2]) == std::vector<std::string>{"steps", "2", "3", "+1"});
    CHECK(Words(results[4]) == std::vector<std::string>{"skipped", "steps", "0", "1", "+1"});
    // The mean of B's underflow is (0 + 0.25) / 2, its mean scale the square root of 8.
    const auto scales = Section(lines, "scale of dx");
    CHECK(Words(scales[1]) == std::vector<std::string>{"loss", "1", "1", "1", "1", "1", "1"});
    CHECK(Words(scales[2]) == std::vector<std::string>{"fc", "1", "2.828", "2.828", "1", "8", "8"});
    const auto underflow = Section(lines, "underflow of dx");
    CHECK(Words(underflow[2]) ==
          std::vector<std::string>{"fc", "0.750", "0.125", "-0.625", "1.500", "0.250", "-1.250"});
  }

  TEST_CASE("where the loss parts, of runs whose scales part before; a loss that is not a number") {
    const WrittenRun a, b;
    a.Step(1, "2", "1");
    b.Step(1, "2", "8");
    a.Append("evaluation.csv", "1,1,test,500,nan,0.5,0.875\n");
    b.Append("evaluation.csv", "1,1,validation,500,0.75,0.5,0.875\n");
    const auto same = Compared(a, b);
    CHECK(Section(same, "rows")[0] == "  steps.csv parts at step 1");
    CHECK(Section(same, "rows")[1] == "    scale: A 1, B 8");
    CHECK(Section(same, "rows")[2] == "    the loss is the same in every row");
    const auto results = Section(same, "results");
    const auto row = [&](const std::string& name) {
      for (const std::string& line : results) {
        if (line.starts_with("  " + name)) return Words(line.substr(2 + name.size()));
      }
      return std::vector<std::string>{};
    };
    CHECK(row("test loss") == std::vector<std::string>{"nan", "-", "-"});
    CHECK(row("validation loss") == std::vector<std::string>{"-", "0.75", "-"});
    CHECK(row("images/s") == std::vector<std::string>{"1000", "1000", "0"});
    a.Step(2, "1.5", "1");
    b.Step(2, "nan", "8");
    CHECK(Has(Compared(a, b), "    the loss parts at step 2: A 1.5, B nan"));
  }

  TEST_CASE("an earlier difference in the layers than in the steps") {
    const WrittenRun a, b;
    a.Step(1, "2");
    b.Step(1, "2");
    a.Step(2, "1.5");
    b.Step(2, "1.25");
    a.Tensor(1, "conv", "dw", "1", "3");
    b.Tensor(1, "conv", "dw", "1", "4");
    for (const WrittenRun* run : {&a, &b}) run->Scale(1, "conv", "8", "cap");
    a.Scale(2, "conv", "8", "cap");
    const auto whole = Compared(a, b);
    CHECK(whole.back().find("they part at step 1") != std::string::npos);
    const auto rows = Section(whole, "rows");
    CHECK(Has(rows, "  steps.csv parts at step 2"));
    CHECK(Has(rows, "  scales.csv: 1 row equal up to that step; only A has 1, only B 0"));
    CHECK(Has(rows, "  underflow.csv parts at step 1, layer conv, tensor dw"));
    CHECK(Has(rows, "    underflow_pct_nonzero: A 3, B 4"));
  }

  TEST_CASE("a run that goes on, and one whose last row is torn") {
    const WrittenRun a, b;
    for (int step = 1; step <= 3; ++step) {
      a.Step(step, "2");
      b.Step(step, "2");
    }
    b.Step(4, "1");
    a.Append("steps.csv", "4,1,9");
    std::filesystem::remove(a.files() / "summary.json");
    const auto lines = Compared(a, b);
    CHECK(Has(lines, "  steps.csv: 3 rows equal; only A has 0, only B 1"));
    CHECK(Has(lines, "  Up to step 3 the steps are equal; then B goes on to step 4."));
    CHECK(Words(Section(lines, "results")[1]) ==
          std::vector<std::string>{"status", "died", "finished"});
  }

  TEST_CASE("layers that only one run has") {
    const WrittenRun a, b;
    a.Tensor(1, "fc", "dx", "1", "0");
    b.Tensor(1, "fc", "dx", "1", "0");
    for (int i = 1; i <= 30; ++i) a.Tensor(1, "block" + std::to_string(i), "dx", "1", "0");
    b.Tensor(1, "head", "dx", "1", "0");
    const auto lines = Compared(a, b);
    const auto only_a = Section(lines, "layers that only A has");
    CHECK(only_a.size() > 1);
    CHECK(only_a.front().starts_with("  block1, block2, block3, "));
    CHECK(only_a.back().ends_with("block30"));
    CHECK(Section(lines, "layers that only B has") == std::vector<std::string>{"  head"});
    CHECK(Has(lines, "  underflow.csv: 1 row equal; only A has 30, only B 1"));
  }

  TEST_CASE("many layers: the largest differences first, equal ones counted") {
    const WrittenRun a, b;
    for (int i = 1; i <= 40; ++i) {
      const std::string name = "stage1.block" + std::to_string(i) + ".conv1";
      a.Tensor(1, name, "dx", "1024", "1");
      b.Tensor(1, name, "dx", "1024", i == 7 ? "3" : i == 30 ? "41" : i == 12 ? "" : "1");
    }
    const auto lines = Compared(a, b);
    const auto underflow = Section(lines, "underflow of dx");
    REQUIRE(underflow.size() == 5);
    // A layer of which one run has no values other than zero cannot be further apart.
    CHECK(Words(underflow[1]) ==
          std::vector<std::string>{"stage1.block12.conv1", "1.000", "-", "-", "1.000", "-", "-"});
    CHECK(Words(underflow[2])[0] == "stage1.block30.conv1");
    CHECK(Words(underflow[2])[3] == "+40.000");
    CHECK(Words(underflow[3])[0] == "stage1.block7.conv1");
    CHECK(underflow[4] == "  the same in both runs: 37 layers");
    CHECK(Section(lines, "scale of dx") ==
          std::vector<std::string>{"  the same in both runs: 40 layers"});
  }

  TEST_CASE("scales that are zero or infinite in both runs are equal") {
    const WrittenRun a, b;
    for (int i = 1; i <= 40; ++i) {
      const std::string name = "block" + std::to_string(i);
      const std::string scale = i % 3 == 0 ? "0" : i % 3 == 1 ? "inf" : "8";
      a.Tensor(1, name, "dx", scale, "1");
      b.Tensor(1, name, "dx", i == 17 ? "16" : scale, "1");
    }
    const auto scales = Section(Compared(a, b), "scale of dx");
    REQUIRE(scales.size() == 3);
    CHECK(Words(scales[1])[0] == "block17");
    CHECK(scales[2] == "  the same in both runs: 39 layers");
  }

  TEST_CASE("runs that logged other steps and tensors share what both have") {
    const WrittenRun a, b;
    a.Tensor(1, "fc", "dx", "1", "0");
    a.Tensor(1, "fc", "y", "1", "0");
    a.Tensor(10, "fc", "dx", "1", "0");
    a.Tensor(20, "fc", "dx", "1", "5");
    b.Tensor(1, "fc", "dx", "1", "0");
    b.Tensor(20, "fc", "dx", "1", "6");
    const FileComparison all = CompareLayerRows(a.path(), b.path(), "underflow.csv", INT64_MAX);
    REQUIRE(all.difference.has_value());
    CHECK(all.difference->step == 20);
    CHECK(all.same == 1);
    const FileComparison first = CompareLayerRows(a.path(), b.path(), "underflow.csv", 19);
    CHECK_FALSE(first.difference.has_value());
    CHECK(first.only_a == 2);
    CHECK(first.only_b == 0);
  }

  TEST_CASE("what a probe adds is no difference; the attempts of a step are told apart") {
    const WrittenRun a, b;
    const std::string row = "1,1,fc,dx,fp16,1,100,0,0,0,0,0,0,0,0,0,0,0.5,2,0,1,80,10,2,";
    a.Append("underflow.csv", row + ",,\n" + row + ",,\n");
    b.Append("underflow.csv", row + "0.25,30,\n" + row + "0.5,31,\n");
    CHECK(CompareLayerRows(a.path(), b.path(), "underflow.csv", 1).equal());
    b.files().Write("underflow.csv", a.files().Read("underflow.csv") + "\n");
    b.files().Write("underflow.csv",
                    telemetry::Header<telemetry::TensorRow>() + "\n" + row + ",,\n");
    const FileComparison fewer = CompareLayerRows(a.path(), b.path(), "underflow.csv", 1);
    CHECK_FALSE(fewer.difference.has_value());
    CHECK(fewer.same == 1);
    CHECK(fewer.only_a == 1);
  }

  TEST_CASE("numbers that are written in another way are equal") {
    const WrittenRun a, b;
    a.Step(1, "2", "1024");
    b.Step(1, "2.0", "1024.0");
    a.Append("events.csv", "1,1,skip,fc,dx,inf,one\n");
    b.Append("events.csv", "1,1,skip,fc,dx,inf,1\n");
    CHECK(CompareRows(a.path(), b.path(), "steps.csv").equal());
    const FileComparison events = CompareRows(a.path(), b.path(), "events.csv");
    REQUIRE(events.difference.has_value());
    CHECK(events.difference->columns.at(0).column == "message");
    CHECK(events.difference->layer == "fc");
  }

  TEST_CASE("long values are shown where they differ") {
    const std::string path = std::string(60, 'x') + "/";
    const WrittenRun a("data: {dataset: mnist, path: " + path + "one}\n", true),
        b("data: {dataset: mnist, path: " + path + "two}\n", true);
    const auto rows = Section(Compared(a, b), "configuration: 1 key differs");
    REQUIRE(rows.size() == 2);
    const auto words = Words(rows[1]);
    REQUIRE(words.size() == 3);
    CHECK(words[0] == "data.path");
    CHECK(words[1].starts_with(".."));
    CHECK(words[1].ends_with("/one"));
    CHECK(words[2].ends_with("/two"));
  }

  TEST_CASE("a folder without a run") {
    const WrittenRun run;
    const TempFolder empty;
    std::ostringstream out;
    CHECK_THROWS_AS(Compare(run.path(), empty.path(), out), DataError);
    CHECK_THROWS_AS(Compare(empty / "nothing", run.path(), out), DataError);
    CHECK(out.str().empty());
  }

  TEST_CASE("text in columns") {
    CHECK(TextWidth("a\xC3\xA4\xE2\x96\x81") == 3);
    CHECK(CutText("abcdef", 6) == "abcdef");
    CHECK(CutText("abcdef", 5) == "abc..");
    CHECK(CutText("\xC3\xA4\xC3\xA4\xC3\xA4\xC3\xA4", 3) == "\xC3\xA4..");
    CHECK(CutText("abc", 1) == ".");
    CHECK(CutText("abc", 0).empty());
    CHECK(CutText("a\033[2Jb\n", 20) == "a\\x1b[2Jb\\x0a");
    CHECK(PaddedText("ab", 4, true) == "  ab");
    CHECK(PaddedText("ab", 4) == "ab  ");
    std::ostringstream out;
    TextTable table({"name", "value"});
    table.Row({"a long name that is cut", "1"});
    table.Print(out, 20);
    CHECK(out.str() == "  name         value\n  a long na..      1\n");
  }
}

}  // namespace
}  // namespace ada::study
