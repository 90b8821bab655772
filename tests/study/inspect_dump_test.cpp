// `ada-train inspect` on a run's dump chooses what the run chose, for convolutions of every
// geometry, and says what it takes for granted where a file does not tell.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "study/tensor_file.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

constexpr char kNetwork[] = R"(
data: {dataset: synthetic, batch_size: 8, synthetic: {height: 16, width: 16, train: 16, test: 8}}
model:
  layers:
    - {name: first, kind: conv2d, channels: 16, kernel: 3, padding: 1}
    - {name: bn, kind: batch_norm}
    - {name: relu, kind: relu}
    - {name: depthwise, kind: conv2d, channels: 16, kernel: 3, padding: 1, groups: 16}
    - {name: grouped, kind: conv2d, channels: 24, kernel: 3, padding: 1, groups: 4}
    - {name: strided, kind: conv2d, channels: 16, kernel: 3, stride: 2, padding: 1}
    - {name: uneven, kind: conv2d, channels: 16, kernel: [3, 1], stride: [2, 1]}
    - {name: point, kind: conv2d, channels: 8, kernel: 1, stride: 2}
    - {name: pool, kind: global_avg_pool}
    - {name: fc, kind: linear, features: 10}
precision: {format: fp16}
train: {max_steps: 1}
log: {every: 1, dump_every: 1}
)";

using Arguments = std::vector<std::string>;

// What decides alpha, in the run and in `inspect`: a threshold at which alpha is not 1.
const Arguments kScaling = {"--set",
                            "scaling.u_min=0.01",
                            "scaling.scale_upper_bound=1.2",
                            "scaling.accum_upper_bound=1e300",
                            "scaling.method=approx_range",
                            "scaling.underflow_target=0.0009765",
                            "scaling.power_of_two=false"};

std::map<std::string, GoldenRow> ByLayer(const Table& table) {
  std::map<std::string, GoldenRow> rows;
  for (const auto& row : table) rows[row.at("layer")] = row;
  return rows;
}

// The dump without what it says of its layers: scales of tensors alone.
void WriteForeign(const TempFolder& folder, const std::string& dump, const std::string& to) {
  const ParsedFile file = ParseTensorFile(ReadBytes(dump));
  std::vector<RawTensor> tensors;
  nlohmann::ordered_json metadata;
  for (const auto& [name, entry] : file.header.items()) {
    if (name != "__metadata__") {
      tensors.push_back(file.Get(name));
      continue;
    }
    for (const auto& [key, value] : entry.items())
      if (key.rfind("scale:", 0) == 0) metadata[key] = value;
  }
  folder.Write(to, TensorFile(tensors, metadata));
}

TEST_SUITE("cpu") {
  TEST_CASE("a dump's scales are the run's: strides, groups, and layers that choose none") {
    const TempFolder folder;
    Arguments run = WriteConfig(folder, "run", kNetwork);
    const Outcome trained =
        Run(With(With(run, kScaling), {"scaling.policy=adaptive"}), folder.path());
    ADA_REQUIRE_EXIT(trained, 0);
    const auto chosen = ByLayer(ReadCsv(folder / "run/scales.csv"));
    REQUIRE(chosen.size() == 6);
    CHECK(std::stod(chosen.at("depthwise").at("unbound")) > 1.2);
    const std::string dump = folder / "run/dump/step-00000001.safetensors";
    WriteForeign(folder, dump, "foreign.safetensors");
    for (const std::string& file : {dump, folder / "foreign.safetensors"}) {
      CAPTURE(file);
      const Outcome o = Run(With({"inspect", file, "--csv", "scales"}, kScaling), folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      folder.Write("scales.csv", o.out);
      const auto found = ByLayer(ReadCsv(folder / "scales.csv"));
      for (const auto& [layer, row] : chosen) {
        CAPTURE(layer);
        REQUIRE(found.count(layer) == 1);
        for (const char* column : {"scale_in", "unbound", "alpha", "scale_out"})
          CHECK(std::stod(found.at(layer).at(column)) ==
                doctest::Approx(std::stod(row.at(column))).epsilon(1e-6));
      }
      CHECK(found.at("depthwise").at("fan") == "9");
      CHECK(found.at("strided").at("fan") == "36");
      // Without a dump's metadata nothing tells that bn, relu, pool and the first layer choose
      // none.
      CHECK(found.size() == (file == dump ? 6 : 10));
    }
    const Outcome text = Run({"inspect", dump}, folder.path());
    ADA_REQUIRE_EXIT(text, 0);
    CHECK(Contains(text.out, "4 layers hand on the scale that comes: none is chosen"));
    CHECK(std::count(text.out.begin(), text.out.end(), '\n') < 70);
    // The key of the reference keeps its own fan.
    const Outcome reference =
        Run({"inspect", dump, "--csv", "scales", "--set", "scaling.fan=reference"}, folder.path());
    CHECK(Contains(reference.out, "depthwise,approx_range,144,"));
  }

  TEST_CASE("a dump's scales are the run's: transposed convolutions, whose weight lies by input") {
    const TempFolder folder;
    std::string network = kNetwork;
    network.insert(network.find("    - {name: pool"),
                   "    - {name: up, kind: conv_transpose2d, channels: 12, kernel: 3, stride: 2, "
                   "groups: 4}\n");
    for (const std::string method : {"approx_range", "element_wise_range"}) {
      CAPTURE(method);
      Arguments run = WriteConfig(folder, method, network);
      Arguments scaling = kScaling;
      std::replace(scaling.begin(), scaling.end(), std::string("scaling.method=approx_range"),
                   "scaling.method=" + method);
      ADA_REQUIRE_EXIT(Run(With(With(run, scaling), {"scaling.policy=adaptive"}), folder.path()),
                       0);
      const GoldenRow chosen = ByLayer(ReadCsv(folder / (method + "/scales.csv"))).at("up");
      const std::string dump = folder / (method + "/dump/step-00000001.safetensors");
      const Outcome o = Run(
          With({"inspect", dump, "--csv", "scales", "--tensors", "up.dy"}, scaling), folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      folder.Write("scales.csv", o.out);
      const GoldenRow found = ByLayer(ReadCsv(folder / "scales.csv")).at("up");
      CHECK(found.at("fan") == "27");  // 12 outputs in 4 groups, 9 taps; no stride divides them
      for (const char* column : {"scale_in", "unbound", "alpha", "scale_out"})
        CHECK(std::stod(found.at(column)) ==
              doctest::Approx(std::stod(chosen.at(column))).epsilon(1e-6));
    }
  }

  TEST_CASE("a dump's scales are the run's: batch norms that choose one") {
    const TempFolder folder;
    Arguments run = WriteConfig(folder, "run", kNetwork);
    ADA_REQUIRE_EXIT(
        Run(With(With(run, kScaling),
                 {"scaling.policy=adaptive", "scaling.batch_norm=true", "scaling.u_min=0.0001"}),
            folder.path()),
        0);
    const auto chosen = ByLayer(ReadCsv(folder / "run/scales.csv"));
    REQUIRE(chosen.count("bn") == 1);
    const std::string dump = folder / "run/dump/step-00000001.safetensors";
    const Outcome o =
        Run(With({"inspect", dump, "--csv", "scales"}, With(kScaling, {"scaling.u_min=0.0001"})),
            folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    folder.Write("scales.csv", o.out);
    const auto found = ByLayer(ReadCsv(folder / "scales.csv"));
    REQUIRE(found.size() == chosen.size());
    CHECK(found.at("bn").at("fan") == "1");
    CHECK(std::stod(found.at("bn").at("unbound")) > 1);
    for (const char* column : {"scale_in", "unbound", "alpha", "scale_out"})
      CHECK(std::stod(found.at("bn").at(column)) ==
            doctest::Approx(std::stod(chosen.at("bn").at(column))).epsilon(1e-6));
    folder.Write("bad.safetensors",
                 TensorFile({F32("bn.dy", {2, 3, 1, 1}, std::vector<float>(6, 1)),
                             F32("bn.factor", {2}, {1, 1})}));
    const Outcome bad = Run({"inspect", "bad.safetensors"}, folder.path());
    ADA_CHECK_EXIT(bad, 3);
    CHECK(Contains(bad.err, "a batch norm with factors [c] has dy [n, c, ...]"));
  }

  TEST_CASE("a convolution of which neither x nor dx is there: said, and taken as one group") {
    const TempFolder folder;
    const std::vector<float> dy(2 * 4, 0x1p-20f), w(2 * 9, 0x1p-4f);
    folder.Write("a.safetensors",
                 TensorFile({F32("c.dy", {1, 2, 2, 2}, dy), F32("c.w", {2, 1, 3, 3}, w)}));
    const Outcome o = Run({"inspect", "a.safetensors", "--csv", "scales"}, folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK(Contains(o.out, "c,approx_range,18,"));
    CHECK(Contains(o.err, "'c': stride and groups taken as 1: the file has neither x nor dx"));
  }

  TEST_CASE("inputs that do not fit and metadata that are no numbers are exit code 3") {
    const TempFolder folder;
    const std::vector<float> dy(2 * 4, 1), w(2 * 2 * 9, 1), x(3 * 16, 1);
    const std::vector<RawTensor> tensors = {
        F32("c.dy", {1, 2, 2, 2}, dy), F32("c.w", {2, 2, 3, 3}, w), F32("c.x", {1, 3, 4, 4}, x)};
    folder.Write("a.safetensors", TensorFile(tensors));
    const Outcome o = Run({"inspect", "a.safetensors"}, folder.path());
    ADA_CHECK_EXIT(o, 3);
    CHECK(Contains(o.err, "the channels of x are those of w times the groups"));
    for (const char* bad : {"two", "2x", "0x1", "2x2 ", "-1", ""}) {
      CAPTURE(bad);
      folder.Write("a.safetensors", TensorFile(tensors, {{"stride:c", bad}, {"groups:c", "1"}}));
      const Outcome wrong = Run({"inspect", "a.safetensors"}, folder.path());
      ADA_CHECK_EXIT(wrong, 3);
      CHECK(Contains(wrong.err, "metadata 'stride:c': expected whole numbers"));
    }
    // A skipped step may leave such a scale.
    const std::vector<float> whole(2 * 16, 1);
    for (const char* bad : {"0", "inf", "nan"}) {
      CAPTURE(bad);
      folder.Write("a.safetensors",
                   TensorFile({tensors[0], tensors[1], F32("c.x", {1, 2, 4, 4}, whole)},
                              {{"scale:c.dy", bad}}));
      const Outcome wrong = Run({"inspect", "a.safetensors"}, folder.path());
      ADA_CHECK_EXIT(wrong, 3);
      CHECK(Contains(wrong.err, "a.safetensors: metadata 'scale:c.dy'"));
      ADA_CHECK_EXIT(Run({"inspect", "a.safetensors", "--scale-in", "8"}, folder.path()), 0);
    }
  }

  TEST_CASE("strides from shapes; an input of a giant shape takes no time") {
    const std::int64_t giant = std::int64_t{1} << 50;
    struct Case {
      std::int64_t in, out, taps;
      const char* fan;  // taps / stride
    };
    for (const Case& c : {Case{224, 112, 7, "3.5"}, Case{32, 32, 3, "3"}, Case{32, 30, 3, "3"},
                          Case{8, 3, 3, "1.5"}, Case{32, 16, 1, "0.5"}, Case{9, 3, 3, "1"},
                          Case{224, 56, 4, "1"}, Case{16, 12, 3, "3"}, Case{giant, 2, 1, ""}}) {
      CAPTURE(c.in);
      CAPTURE(c.out);
      const TempFolder folder;
      const std::vector<float> w(static_cast<std::size_t>(c.taps), 1);
      folder.Write("a.safetensors",
                   TensorFile({F32("c.dy", {0, 1, c.out}, {}), F32("c.w", {1, 1, c.taps}, w),
                               F32("c.x", {0, 1, c.in}, {})}));
      const Outcome o = Run({"inspect", "a.safetensors", "--csv", "scales"}, folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      CHECK(Contains(o.out, std::string("c,approx_range,") + c.fan));
    }
  }
}

}  // namespace
}  // namespace ada::testing
