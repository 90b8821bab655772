// Whole runs whose products round their operands: the same bytes however the work is asked for, and
// the rows, dumped scales and what-ifs of a run on the CPU backend.
#include <doctest/doctest.h>

#include "cuda/run_lab.h"
#include "io/tensor_files/safetensors.h"
#include "train/run_files.h"

namespace ada::backend::test {
namespace {

using testing::GoldenRow;
using testing::ReadCsv;
using Table = std::vector<GoldenRow>;

constexpr char kLogged[] =
    ";scaling.policy=fixed;scaling.scale=64;log.statistics=[y, w, dx, dy, dw, operands]";

const std::vector<std::string>& Precisions() {
  static const std::vector<std::string> all = {
      "precision.format=bf16;precision.recipe=te_nvfp4",
      "precision.format=bf16;precision.recipe=mxfp4_hadamard",
      "precision.format=fp16;precision.operands={x: mxfp8_e4m3, w: fp8_block128, dy: mxfp8_e5m2}",
      "precision.format=bf16;precision.recipe=te_fp8_delayed",
      "precision.format=fp32;precision.recipe=te_fp8_current"};
  return all;
}

Table FirstStep(const std::string& run, const std::string& file) {
  Table rows;
  for (const GoldenRow& row : ReadCsv(run + "/" + file))
    if (row.at("step") == "1") rows.push_back(row);
  return rows;
}
bool IsNumber(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789.e+-") == std::string::npos;
}

// What the images and the first weights give is the same to the letter; what comes after a product,
// whose sums have another order, nearly so.
void SameRows(const std::string& cpu, const std::string& kernels, const std::string& file) {
  CAPTURE(file);
  const Table want = FirstStep(cpu, file), got = FirstStep(kernels, file);
  REQUIRE(want.size() == got.size());
  std::size_t exact = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::string& tensor = want[i].at("tensor");
    CAPTURE(want[i].at("layer"));
    CAPTURE(tensor);
    const bool first = want[i].at("layer") == "conv1" && tensor.ends_with(".x");
    const bool same = first || tensor.ends_with(".w");
    exact += same ? 1 : 0;
    for (const auto& [column, value] : want[i]) {
      CAPTURE(column);
      const std::string& other = got[i].at(column);
      if (same || column == "layer" || column == "tensor" || column == "numel" ||
          column == "blocks" || column == "format" || !IsNumber(value))
        CHECK(value == other);
      else if (column == "sqnr_db" || column == "l1" || column == "l2")
        CHECK(std::stod(other) == doctest::Approx(std::stod(value)).epsilon(2e-2));
    }
  }
  CHECK(exact >= 3);
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("runs with operands: the same bytes again, in halves, with and without graphs") {
    for (const std::string& precision : Precisions()) {
      CAPTURE(precision);
      const std::string changes = precision + kLogged + ";checkpoint.best=false;train.accumulate=2";
      const testing::TempFolder folder;
      const std::string path = folder.path();
      Train(Small(changes), path + "/once", 7);
      Train(Small(changes), path + "/halves", 4);
      Train(Small(changes), path + "/halves", 7);
      CheckSameFiles(path + "/once", path + "/halves", "evaluation.csv");
      CudaSwitches switches;
      switches.graphs = switches.side_stream = false;
      Train(Small(changes), path + "/plain", 7, *MakeBackendUnderTest(switches));
      CheckSameFiles(path + "/once", path + "/plain");
    }
  }

  TEST_CASE("runs with operands: rows, dumped scales and what-ifs of the CPU backend") {
    for (const std::string& precision : Precisions()) {
      CAPTURE(precision);
      const config::Config config =
          Small(precision + kLogged +
                ";log.every=1;log.histogram_every=1;log.dump_every=1;log.what_if=[{format: nvfp4}, "
                "{format: mxfp8_e5m2}]");
      const testing::TempFolder folder;
      const std::string cpu = folder / "cpu", kernels = folder / "kernels";
      Train(config, cpu, 1, *cpu::MakeCpuBackend(1));
      Train(config, kernels, 1);
      SameRows(cpu, kernels, "underflow.csv");
      SameRows(cpu, kernels, "what_if_blocks.csv");
      const bool blocks = precision.find("fp8_current") == std::string::npos &&
                          precision.find("fp8_delayed") == std::string::npos;
      if (!blocks) continue;
      SameRows(cpu, kernels, "blocks.csv");
      const std::string file = "/dump/step-00000001.safetensors";
      const auto want = SafetensorsFile::Open(cpu + file),
                 got = SafetensorsFile::Open(kernels + file);
      int compared = 0;
      for (const char* operand : {"conv1.forward.x", "conv1.forward.w", "conv2.forward.w",
                                  "conv2.dx.w", "fc.dx.w", "conv1.dw.x"}) {
        const std::string name = std::string(operand) + ".scales";
        CAPTURE(name);
        if (want.Find(name) == nullptr) continue;
        REQUIRE(got.Find(name) != nullptr);
        CHECK(want.Find(name)->shape == got.Find(name)->shape);
        CHECK(want.ReadF32(name) == got.ReadF32(name));
        CHECK(want.metadata().at("amax:" + name) == got.metadata().at("amax:" + name));
        ++compared;
      }
      CHECK(compared >= 2);
    }
  }
}

}  // namespace ada::backend::test
