// Products that round their operands, on the CPU and the CUDA backend at once: what is counted of
// operands, of their blocks and their scales is equal, and a wrong one is named.
#include <doctest/doctest.h>

#include <functional>

#include "compare/breaking_backend.h"
#include "cuda/agreement_lab.h"
#include "cuda/operands_lab.h"
#include "cuda/run_lab.h"

namespace ada::backend::test {
namespace {

using compare::Difference;

MatmulCase Convolution() {
  return {"3x3", {3, 6, 5, 20}, 24, {3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true};
}

BlockFormat Named(const std::string& name) {
  for (const NamedBlockFormat& named : NamedBlockFormats())
    if (named.name == name) return named.format;
  FAIL("no format " << name);
  return {};
}

// What is found of a convolution whose counts and scales are damaged on one side.
Difference Find(const OperandSettings& settings, bool backward,
                const std::function<void(const MatmulSpec&)>& damage) {
  Difference first;
  CompareOptions options;
  options.report = [&](const Difference& difference) {
    if (first.call == 0) first = difference;
  };
  const Mistake mistake{settings.layer.name, backward,
                        [&](const OpSpec& spec) { damage(std::get<Conv2dSpec>(spec)); }};
  Lab lab(MakeCompareBackend(cpu::MakeCpuBackend(1), std::make_unique<BreakingBackend>(mistake),
                             options));
  Findings findings;
  OperandLab(lab, settings).Steps(findings);
  return first;
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("agreement: layers whose products round their operands, op by op") {
    const MatmulCase linear = LinearCase("linear of images", {5, 3, 2, 20}, 33, true);
    for (const MatmulCase& c : {Convolution(), linear, Transposed(Convolution())}) {
      CAPTURE(c.name);
      std::vector<OperandSettings> all;
      for (const char* name : {"mxfp8_e5m2", "nvfp4", "mxfp4", "fp8_block128"})
        all.push_back(AllAlike(c, InBlocks(Named(name))));
      all.push_back(AllAlike(c, InFormat(kFp8E4M3)));
      all.back().per_tensor_scale = 1, all.back().current = true;
      for (const OperandSettings& settings : all) {
        Agreement both;
        Findings findings;
        OperandLab(both.lab, settings).Steps(findings);
      }
    }
  }

  TEST_CASE("agreement: runs whose products round their operands, op by op") {
    for (const char* precision :
         {"precision.format=bf16;precision.recipe=te_nvfp4",
          "precision.format=bf16;precision.recipe=mxfp4_hadamard",
          "precision.format=fp16;precision.operands={x: mxfp8_e4m3, w: fp8_block128, dy: "
          "mxfp8_e5m2}",
          "precision.format=fp32;precision.recipe=te_fp8_current"}) {
      CAPTURE(precision);
      const testing::TempFolder folder;
      CompareOptions options;
      options.slack = kSlack;
      const auto both = MakeCompareBackend(cpu::MakeCpuBackend(1), MakeBackendUnderTest(), options);
      const config::Config config =
          Small(std::string(precision) + ";log.statistics=[y, w, dx, dy, dw, operands]");
      CHECK_NOTHROW(Train(config, folder.path(), 4, *both));
    }
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("compare: a count, a sum or a scale of an operand that is off") {
    const OperandSettings blocks = AllAlike(Convolution(), InBlocks(Named("nvfp4")));
    const auto counts = [](Operand operand, auto&& change) {
      return [operand, change](const MatmulSpec& s) { change(s.operands[IndexOf(operand)]); };
    };
    const auto name = [](const Difference& d) { return d.phase + " " + d.tensor + " " + d.what; };
    CHECK(name(Find(blocks, false, counts(Operand::kForwardX, [](const OperandRounding& o) {
                      ++o.block_counts->saturated;
                    }))) == "forward forward.x saturated");
    CHECK(name(Find(blocks, true, counts(Operand::kDwDy, [](const OperandRounding& o) {
                      o.block_counts->noise *= 1 + 1e-8;
                    }))) == "backward dw.dy noise");
    CHECK(name(Find(blocks, true, counts(Operand::kDxDy, [](const OperandRounding& o) {
                      o.block_counts->sqnr_worst += 1e-6;
                    }))) == "backward dx.dy sqnr_worst");
    CHECK(name(Find(blocks, true, counts(Operand::kDwX, [](const OperandRounding& o) {
                      ++o.stats->underflow;
                    }))) == "backward dw.x underflow");
    OperandSettings scaled = AllAlike(Convolution(), InFormat(kFp8E4M3));
    scaled.per_tensor_scale = 1, scaled.current = true;
    CHECK(name(Find(scaled, false, counts(Operand::kForwardX, [](const OperandRounding& o) {
                      o.current->scale *= 1 + 0x1p-20f;
                    }))) == "forward forward.x tensor scale");
  }
}

}  // namespace
}  // namespace ada::backend::test
