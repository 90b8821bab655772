// Runs that ranks share, each with a device, against runs of as many ranks on CPUs.
#include <doctest/doctest.h>

#include <string>

#include "parallel/compare_runs.h"

namespace ada::testing {
namespace {

// first: of the loss of step 1; a sum whose last bit differs may round to another value in few
// bits, of one rank as of several.
void Compare(const std::string& text, int ranks, const config::Overrides& overrides,
             double first = 1e-6, double later = 1e-3) {
  CAPTURE(ranks);
  CAPTURE(text);
  const TempFolder folder;
  MustTrain(text, folder / "cpu", ranks, {.overrides = overrides, .on_cpu = true});
  MustTrain(text, folder / "kernels", ranks, {.overrides = overrides});
  CompareLosses(folder / "cpu", folder / "kernels", first, later);
  CompareCounts(folder / "cpu", folder / "kernels", 2e-3);
  CompareScales(folder / "cpu", folder / "kernels");
}

// Every figure of images and first weights is the same; of what comes after products, whose sums
// have another order, the scale of a plain format nearly.
void SameOperands(const std::string& cpu, const std::string& kernels, const std::string& file) {
  CAPTURE(file);
  const Table want = ReadCsv(cpu + "/" + file), got = ReadCsv(kernels + "/" + file);
  REQUIRE(want.size() == got.size());
  int exact = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::string& tensor = want[i].at("tensor");
    if (tensor.find('.') == std::string::npos) continue;
    CAPTURE(want[i].at("layer"));
    CAPTURE(tensor);
    const bool same =
        tensor.ends_with(".w") || (want[i].at("layer") == "conv1" && tensor.ends_with(".x"));
    if (same) {
      CHECK(want[i] == got[i]);
      ++exact;
    }
    if (want[i].contains("scale"))
      CHECK(NumberIn(want[i], "scale") == doctest::Approx(NumberIn(got[i], "scale")).epsilon(1e-4));
  }
  CHECK(exact >= 7);
}

TEST_SUITE("cpu") {
  TEST_CASE("kernels and CPU: the same losses, counts and scales of as many ranks") {
    const config::Overrides once = {{"train.epochs", "1"}};
    for (const int ranks : {1, 2, 3}) {
      Compare(std::string(kPlain) + "scaling: {policy: adaptive, init_scale: 8}\n", ranks, once);
      Compare(std::string(kPlain) + "scaling: {policy: adaptive, method: lognormal}\n", ranks,
              once);
      Compare(std::string(kPlain) + "scaling: {policy: adaptive}\nparallel: {statistics: local}\n",
              ranks, once);
      Compare(kNorms, ranks, once);
      // Data sets that lie on the device, of which each rank takes its part of every micro-batch.
      Compare(kNorms, ranks,
              {{"train.epochs", "1"}, {"data.batch_size", "21"}, {"train.accumulate", "3"}});
      Compare(std::string(kPlain) + "scaling: {policy: none}\n", ranks,
              {{"train.epochs", "1"},
               {"precision.format", "fp8_e5m2"},
               {"precision.tensor_scaling.kind", "delayed"},
               {"optimizer.lr", "0.002"},
               {"log.probe_every", "0"}},
              1e-5, 1e-2);
      // Sums that are rounded as the authors' program rounds, which is done to sums of all.
      Compare(std::string(kPlain) + "scaling: {policy: adaptive, reference: true}\n", ranks,
              {{"train.epochs", "1"}, {"precision.weight_gradients", "fp16"}}, 1e-5, 1e-2);
      // Each rank's own statistics, of which running averages are means; factors of its own, too.
      const config::Overrides apart = {{"parallel.sync_batch_norm", "false"},
                                       {"train.epochs", "1"}};
      Compare(kNorms, ranks, apart);
      Compare(std::string(kNorms) + "scaling: {policy: adaptive, batch_norm: true}\n", ranks,
              apart);
      Compare(std::string(kNorms) + "scaling: {policy: adaptive, batch_norm: true}\n", ranks,
              {{"precision.format", "fp16"}, {"train.epochs", "1"}}, 5e-5, 1e-2);
    }
  }

  TEST_CASE("kernels and CPU: operands whose scales are those of all ranks' tensors") {
    for (const std::string& operands :
         {std::string("{operands: nvfp4}"), std::string("{recipe: te_nvfp4}"),
          std::string("{operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, tensor_scaling: "
                      "current}}")})
      for (const int ranks : {2, 3}) {
        CAPTURE(operands);
        CAPTURE(ranks);
        const TempFolder folder;
        const std::string text = std::string(kPlain) + "scaling: {policy: fixed, scale: 64}\n";
        const config::Overrides overrides = {{"train.max_steps", "1"},
                                             {"precision", operands},
                                             {"precision.format", "fp32"},
                                             {"log.probe_every", "0"},
                                             {"log.statistics", "[dx, dw, operands]"}};
        MustTrain(text, folder / "cpu", ranks, {.overrides = overrides, .on_cpu = true});
        MustTrain(text, folder / "kernels", ranks, {.overrides = overrides});
        CompareLosses(folder / "cpu", folder / "kernels", 1e-6, 1e-6);
        SameOperands(folder / "cpu", folder / "kernels", "underflow.csv");
        if (operands.find("nvfp4") != std::string::npos)
          SameOperands(folder / "cpu", folder / "kernels", "blocks.csv");
      }
  }

  TEST_CASE("kernels and CPU: a language model by each way that attention's alphas know") {
    const TempFolder data;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the cat sat on the mat. a dog lay in the fog. ";
    data.Write("text.txt", text);
    for (const int ranks : {1, 2, 3})
      for (const std::string method : {"approx_range", "exact_range"})
        Compare(kWords, ranks,
                {{"data.path", data / "text.txt"},
                 {"train.max_steps", "2"},
                 {"scaling.method", method}},
                1e-5, 1e-2);
  }

  TEST_CASE("kernels and CPU: statistics of batch norms that are computed anew") {
    // The last batch has one image, of which one rank alone takes statistics.
    const config::Overrides overrides = {{"data.synthetic.train", "91"},
                                         {"evaluate.recompute_batch_norm", "true"}};
    const TempFolder folder;
    MustTrain(kNorms, folder / "cpu", 2, {.overrides = overrides, .on_cpu = true});
    MustTrain(kNorms, folder / "kernels", 2, {.overrides = overrides});
    const Table a = ReadCsv(folder / "cpu/evaluation.csv");
    const Table b = ReadCsv(folder / "kernels/evaluation.csv");
    REQUIRE(a.size() == b.size());
    REQUIRE(!a.empty());
    for (std::size_t i = 0; i < a.size(); ++i)
      CHECK(NumberIn(a[i], "loss") == doctest::Approx(NumberIn(b[i], "loss")).epsilon(1e-4));
  }

  TEST_CASE("kernels and CPU: what transport in 16 bits lost") {
    const std::string text =
        std::string(kPlain) + "scaling: {policy: fixed, scale: 64}\nparallel: {gradients: fp16}\n";
    const TempFolder folder;
    const config::Overrides once = {{"train.max_steps", "1"}, {"precision.format", "fp32"}};
    MustTrain(text, folder / "cpu", 3, {.overrides = once, .on_cpu = true});
    MustTrain(text, folder / "kernels", 3, {.overrides = once});
    const auto sent = [](const std::string& run) {
      return RowsWhere(ReadCsv(run + "/underflow.csv"), "tensor", "sent");
    };
    const Table a = sent(folder / "cpu"), b = sent(folder / "kernels");
    REQUIRE(a.size() == b.size());
    REQUIRE(a.size() == 3);
    for (std::size_t i = 0; i < a.size(); ++i) {
      CHECK(a[i].at("layer") == b[i].at("layer"));
      CHECK(a[i].at("numel") == b[i].at("numel"));
      // Gradients differ in the order of their sums.
      for (const char* column : {"underflow", "subnormal", "zeros_before"})
        CHECK(std::fabs(NumberIn(a[i], column) - NumberIn(b[i], column)) <=
              0.01 * NumberIn(a[i], "numel"));
      CHECK(NumberIn(a[i], "l1") == doctest::Approx(NumberIn(b[i], "l1")).epsilon(1e-4));
    }
  }
}

}  // namespace
}  // namespace ada::testing
