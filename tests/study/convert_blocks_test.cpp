// `ada-train convert` and `inspect` to block-scaled formats: names, shapes and types of what they
// write, odd tensors, refusals. Values beside other programs': block_golden_test.py.
#include <cmath>
#include <string>
#include <vector>

#include "study/inspected.h"
#include "study/tensor_file.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Shape = std::vector<std::int64_t>;

std::vector<float> Ramp(std::size_t count) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i % 17) - 8;
  return values;
}

class Converter {
 public:
  explicit Converter(const std::vector<RawTensor>& tensors) {
    folder_.Write("in.safetensors", TensorFile(tensors));
  }
  Outcome Run(std::vector<std::string> options) const {
    options.insert(options.begin(), {"convert", "in.safetensors", "out.safetensors"});
    return testing::Run(options, folder_.path());
  }
  Outcome Inspect(std::vector<std::string> options) const {
    options.insert(options.begin(), {"inspect", "in.safetensors"});
    return testing::Run(options, folder_.path());
  }
  ParsedFile Out() const { return ParseTensorFile(folder_.Read("out.safetensors")); }
  bool wrote() const { return folder_.Has("out.safetensors"); }

 private:
  TempFolder folder_;
};

TEST_SUITE("cpu") {
  TEST_CASE("scales and codes lie beside the values, in the shapes that the page names") {
    struct Row {
      std::string format, axis;
      Shape shape, scales;
      std::string scale_type;
      bool amax;
    };
    const std::string tiles = "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3}";
    const Row table[] = {
        {"mxfp8_e4m3", "1", {3, 70}, {3, 3}, "U8", false},
        {"mxfp8_e4m3", "-1", {3, 70}, {3, 3}, "U8", false},
        {"mxfp4", "0", {70, 3}, {3, 3}, "U8", false},
        {"mxfp6_e2m3", "-3", {2, 33, 4, 5}, {2, 2, 4, 5}, "U8", false},
        {"nvfp4", "1", {4, 20}, {4, 2}, "U8", true},
        {"fp8_block128", "1", {2, 130}, {2, 2}, "F32", false},
        {tiles, "1", {20, 40}, {2, 3}, "U8", true},
        {tiles, "0", {20, 40}, {2, 3}, "U8", true},
        {tiles, "1", {20, 40, 3, 3}, {2, 3, 3, 3}, "U8", true},
        {tiles, "0", {20, 40, 3, 3}, {2, 3, 3, 3}, "U8", true},
        {tiles, "2", {2, 10, 40}, {2, 3}, "U8", true},
        {"mxfp8_e5m2", "0", {}, {}, "U8", false},
        {"nvfp4", "-1", {1}, {1}, "U8", true},
        {"mxfp8_e4m3", "1", {0, 5}, {0, 1}, "U8", false},
        {"mxfp8_e4m3", "1", {5, 0}, {5, 0}, "U8", false},
    };
    for (const Row& row : table) {
      CAPTURE(row.format);
      CAPTURE(row.axis);
      std::size_t count = 1;
      for (const std::int64_t size : row.shape) count *= static_cast<std::size_t>(size);
      const Converter converter({F32("t", row.shape, Ramp(count))});
      ADA_REQUIRE_EXIT(converter.Run({"--format", row.format, "--axis", row.axis, "--save-scales"}),
                       0);
      const ParsedFile out = converter.Out();
      CHECK(out.header.size() == (row.amax ? 4 : 3));
      CHECK(out.Get("t").dtype == "F32");
      CHECK(out.Get("t").shape == row.shape);
      CHECK(out.Get("t.codes").dtype == "U8");
      CHECK(out.Get("t.codes").shape == row.shape);
      CHECK(out.Get("t.scale").dtype == row.scale_type);
      CHECK(out.Get("t.scale").shape == row.scales);
      if (row.amax) CHECK(out.Floats("t.amax").size() == 1);
    }
  }

  TEST_CASE("a scale of each row: largest magnitudes lie where a row is, and decode its codes") {
    const std::vector<float> values = Ramp(2 * 20 * 3);
    for (const int axis : {0, 1, 2}) {
      const Converter converter({F32("t", {2, 20, 3}, values)});
      ADA_REQUIRE_EXIT(
          converter.Run({"--format", "{element: fp4_e2m1, scale: fp8_e4m3, tensor_scale: row}",
                         "--axis", std::to_string(axis), "--save-scales"}),
          0);
      const ParsedFile out = converter.Out();
      std::vector<std::int64_t> shape = {2, 20, 3}, stride = {60, 3, 1};
      const auto along = static_cast<std::size_t>(axis);
      const std::int64_t length = shape[along];
      shape[along] = 1;
      CHECK(out.Get("t.amax").shape == shape);
      const std::vector<float> amaxes = out.Floats("t.amax");
      std::size_t row = 0;
      for (std::int64_t i = 0; i < shape[0]; ++i)
        for (std::int64_t j = 0; j < shape[1]; ++j)
          for (std::int64_t k = 0; k < shape[2]; ++k, ++row) {
            float largest = 0;
            for (std::int64_t n = 0; n < length; ++n)
              largest =
                  std::max(largest, std::fabs(values[static_cast<std::size_t>(
                                        i * stride[0] + j * stride[1] + k + n * stride[along])]));
            CHECK(amaxes.at(row) == largest);
          }
    }
  }

  TEST_CASE("the last axis is the default; values alone are written without --save-scales") {
    const std::vector<float> values = Ramp(96);
    const Converter converter({F32("t", {3, 32}, values), {"n", "I32", {1}, "abcd"}});
    ADA_REQUIRE_EXIT(converter.Run({"--format", "mxfp8_e4m3"}), 0);
    CHECK(converter.Out().header.size() == 2);
    CHECK(converter.Out().Get("n").bytes == "abcd");
    CHECK(converter.Out().Floats("t") == values);  // whole numbers up to 8 are in fp8_e4m3
    ADA_REQUIRE_EXIT(converter.Run({"--format", "mxfp8_e4m3", "--scale", "0.5"}), 0);
    std::vector<float> halves = values;
    for (float& x : halves) x /= 2;
    CHECK(converter.Out().Floats("t") == halves);
  }

  TEST_CASE("values of other types: BF16 and F16 exactly, F64 rounded to fp32 once") {
    const std::vector<double> wide = {1.0, 0x1p-160, 3.0000001};
    const Converter converter({{"b", "BF16", {2}, BytesOfValues<std::uint16_t>({0x3f80, 0xc040})},
                               {"h", "F16", {2}, BytesOfValues<std::uint16_t>({0x3c00, 0x4200})},
                               {"d", "F64", {3}, BytesOfValues(wide)}});
    ADA_REQUIRE_EXIT(converter.Run({"--format", "mxfp8_e4m3"}), 0);
    CHECK(converter.Out().Floats("b") == std::vector<float>{1, -3});
    CHECK(converter.Out().Floats("h") == std::vector<float>{1, 3});
    CHECK(converter.Out().Floats("d")[1] == 0);
  }

  TEST_CASE("what cannot be done is refused, and nothing is written") {
    struct Row {
      std::vector<std::string> options;
      std::string message;
    };
    const Row table[] = {
        {{"--format", "nvfp4", "--axis", "2"},
         "--axis 2: tensor 'm' of in.safetensors has 2 axes; expected -2 to 1, or --tensors with a "
         "glob that leaves it out"},
        {{"--format", "nvfp4", "--axis", "1", "--tensors", "v*"},
         "--axis 1: tensor 'v' of in.safetensors has one axis; expected -1 to 0"},
        {{"--format", "fp16", "--axis", "1"}, "--axis: fp16 has no scales of blocks"},
        {{"--format", "fp16", "--save-scales"}, "--save-scales: fp16 has no scales of blocks"},
        {{"--format", "mxfp8"}, "did you mean 'mxfp8_e4m3'?"},
        {{"--format", "mxfp9"}, "did you mean 'mxfp4'?"},
        {{"--format", "nvfp4", "--tensors", "x*"}, "--tensors x*: matches none of the 3 tensors"},
        {{"--format", "nvfp4", "--save-scales"}, "has a tensor 'v.scale' already, beside 'v'"},
        {{"--format", "{element: fp16}"}, "element: expected one of fp8_e4m3, fp8_e5m2"},
        {{"--format", "{element: fp4_e2m1, block: [16, 32]}"}, "or [n, n] for square tiles"},
        {{"--format", "{element: fp4_e2m1, block: 0}"}, "1 to 1024"},
        {{"--format", "{block: 32}"}, "element: missing"},
        {{"--format", "{element: fp4_e2m1, rule: four_over_six}"},
         "scale e8m0 has no rule four_over_six"},
        {{"--format", "{element: fp4_e2m1, scale: fp8_e4m3, tensor_scale: rows}"},
         "tensor_scale: expected true, false or row; got 'rows'"},
        {{"--format", "{element: fp4_e2m1, block: [16, 16], scale: fp8_e4m3, tensor_scale: row}"},
         "tensor_scale: row is for blocks along an axis; a tile lies in several rows"},
        {{"--format", "{element: fp4_e2m1, scale: fp8_e4m3, rule: torchao, tensor_scale: row}"},
         "tensor_scale: row is for rules te and four_over_six"},
        {{"--format", "{element: fp4_e2m1, tensor_scale: true}"},
         "does not belong to scale e8m0, only to fp8_e4m3"},
        {{"--format", "{element: fp4_e2m1, scale: fp8_e4m3, top: 448}"},
         "does not belong to rule te, only to four_over_six"},
        {{"--format", "{element: fp4_e2m1, scale: fp8_e4m3, rule: four_over_six, top: 300}"},
         "top: expected 448 or 256"},
        {{"--format", "{element: fp4_e2m1, mantissa: 3}"}, "mantissa: unknown key"},
    };
    const Converter converter(
        {F32("m", {2, 3}, Ramp(6)), F32("v", {4}, Ramp(4)), F32("v.scale", {1}, {1})});
    for (const Row& row : table) {
      CAPTURE(row.message);
      const Outcome o = converter.Run(row.options);
      ADA_CHECK_EXIT(o, 2);
      CHECK_MESSAGE(Contains(o.err, row.message), o.err);
      CHECK(!converter.wrote());
    }
  }

  TEST_CASE("only the tensors of a glob are converted") {
    const Converter converter({F32("a", {2}, {0.3f, 1}), F32("b", {2}, {0.3f, 1})});
    ADA_REQUIRE_EXIT(converter.Run({"--format", "mxfp4", "--tensors", "a"}), 0);
    CHECK(converter.Out().Floats("a") == std::vector<float>{0.25f, 1});
    CHECK(converter.Out().Floats("b") == std::vector<float>{0.3f, 1});
  }

  TEST_CASE("inspect counts what a block-scaled format loses, and why") {
    std::vector<float> values(64, 1.0f);
    values[1] = 0.04f;  // 6 of fp4 beside it is 1: below half of the smallest
    values[2] = 7.0f;   // of the first block the largest; saturates at 6
    const Converter converter({F32("t", {2, 32}, values), {"n", "I32", {1}, "abcd"}});
    const Outcome csv = converter.Inspect({"--format", "mxfp4", "--csv", "counts"});
    ADA_REQUIRE_EXIT(csv, 0);
    CHECK(csv.out.starts_with("tensor,format,scale,numel,zeros,inf,nan,lost,lost_pct_nonzero,"));
    CHECK_MESSAGE(Contains(csv.out, "t,mxfp4,1,64,0,0,0,1,1.5625,1,0,0,0,1,2,0,0,-2,0,"), csv.out);
    const Outcome text = converter.Inspect({"--format", "mxfp4"});
    ADA_REQUIRE_EXIT(text, 0);
    for (const char* part :
         {"format mxfp4", "blocks of 32 values", "rule floor", "SQNR", "n  I32 [1]  skipped"})
      CHECK_MESSAGE(Contains(text.out, part), part);
    const Outcome all = converter.Inspect({"--format", "mxfp4", "--all", "--axis", "0"});
    ADA_REQUIRE_EXIT(all, 0);
    CHECK(Contains(all.out, "beside the block's largest"));
    for (const Outcome& o : {text, all}) {
      for (const std::string& line : Lines(o.out)) CHECK(line.size() <= 80);
    }
  }

  TEST_CASE("inspect refuses what it cannot say of blocks") {
    const Converter converter({F32("t.dy", {2, 32}, Ramp(64))});
    const auto refused = [&](const std::vector<std::string>& options, const std::string& message) {
      const Outcome o = converter.Inspect(options);
      ADA_CHECK_EXIT(o, 2);
      CHECK_MESSAGE(Contains(o.err, message), o.err);
    };
    refused({"--format", "nvfp4", "--csv", "scales"}, "expected --csv counts");
    refused({"--format", "nvfp4", "--set", "scaling.underflow_target=0.1"},
            "--set scaling.underflow_target: changes what adaptive chooses");
    refused({"--axis", "0"}, "--axis: fp16 has no scales of blocks");
    refused({"--format", "nvfp4", "--axis", "-3"}, "--axis -3: tensor 't.dy'");
  }
}

}  // namespace
}  // namespace ada::testing
