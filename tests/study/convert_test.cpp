// `ada-train convert`: what it writes, bit for bit, and what it leaves alone.
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "number/number_format.h"
#include "number/random.h"
#include "study/tensor_file.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

// Values of all magnitudes that fp32 has, and its specials.
std::vector<float> Values(std::uint64_t seed) {
  std::vector<float> values = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 65520, 464, 0x1p-25f};
  for (std::uint64_t i = 0; i < 2000; ++i)
    for (const std::uint32_t word : Philox(seed, 0, i))
      values.push_back(std::bit_cast<float>(word));
  return values;
}

bool SameBits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

TEST_SUITE("cpu") {
  TEST_CASE("floats are rounded as RoundTo does, times S before; the rest is kept") {
    const std::vector<float> f32 = Values(1);
    const std::vector<double> f64 = {1e-300, 1 + 0x1p-24, -3.3, 1e300};
    const std::vector<RawTensor> tensors = {
        {"odd", "U8", {3}, "abc"},
        F32("f", {4, static_cast<std::int64_t>(f32.size()) / 4}, f32),
        {"d", "F64", {2, 2}, BytesOfValues(f64)},
        {"h", "F16", {2}, BytesOfValues<std::uint16_t>({0x0001, 0xfbff})},
        {"e", "F8_E4M3", {1, 2}, "\x01\x7e"},
        {"fnuz", "F8_E4M3FNUZ", {2}, "\x01\x7f"},
        {"l", "I64", {}, std::string(8, '\3')},
        {"t", "BOOL", {2}, std::string("\1\0", 2)},
        {"none", "BF16", {0, 7}, ""},
        {"c", "C64", {1}, "complexx"},
    };
    struct Row {
      std::string format;
      NumberFormat truth;
      std::string scale;
    };
    const Row table[] = {{"fp16", kFp16, "1"},
                         {"fp8_e4m3", kFp8E4M3, "1024"},
                         {"bf16", kBf16, "0.3"},
                         {"{exponent: 3, mantissa: 2}", NumberFormat{3, 2, 3}, "1"},
                         {"fp32", kFp32, "1"}};
    const TempFolder folder;
    folder.Write("in.safetensors", TensorFile(tensors, {{"by", "a test"}, {"format", "pt"}}));
    for (const Row& row : table) {
      CAPTURE(row.format);
      const Outcome o = Run({"convert", "in.safetensors", "out.safetensors", "--format", row.format,
                             "--scale", row.scale},
                            folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      CHECK(o.out.empty());
      CHECK(o.err ==
            "in.safetensors: 1 tensor of type C64, which is not read, copied as it stands: c\n");
      const ParsedFile out = ParseTensorFile(folder.Read("out.safetensors"));
      CHECK(out.header.size() == tensors.size() + 1);
      CHECK(out.header.at("__metadata__") == nlohmann::json{{"by", "a test"}, {"format", "pt"}});
      for (const RawTensor& tensor : tensors) CHECK(out.Get(tensor.name).shape == tensor.shape);
      for (const std::size_t i : {0, 6, 7, 9}) {
        CHECK(out.Get(tensors[i].name).dtype == tensors[i].dtype);
        CHECK(out.Get(tensors[i].name).bytes == tensors[i].bytes);
      }
      const float scale = std::stof(row.scale);
      const auto check = [&](const std::string& name, const std::vector<float>& before) {
        CAPTURE(name);
        const std::vector<float> after = out.Floats(name);
        REQUIRE(after.size() == before.size());
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < before.size(); ++i)
          wrong += !SameBits(after[i], RoundTo(row.truth, before[i] * scale));
        CHECK(wrong == 0);
      };
      check("f", f32);
      const std::vector<float> doubles = out.Floats("d");
      REQUIRE(doubles.size() == f64.size());
      for (std::size_t i = 0; i < f64.size(); ++i)
        CHECK(SameBits(doubles[i], RoundTo(row.truth, f64[i] * static_cast<double>(scale))));
      check("h", {0x1p-24f, -65504});
      check("e", {0x1p-9f, 448});
      check("fnuz", {0x1p-10f, 240});
      check("none", {});
    }
  }

  TEST_CASE("the output may be the input; what cannot be written leaves the old file") {
    const TempFolder folder;
    const std::string bytes = TensorFile({F32("a", {2}, {0.1f, 1e-9f})});
    folder.Write("a.safetensors", bytes);
    ADA_REQUIRE_EXIT(
        Run({"convert", "a.safetensors", "a.safetensors", "--format", "fp16"}, folder.path()), 0);
    const std::string once = folder.Read("a.safetensors");
    CHECK(ParseTensorFile(once).Floats("a") == std::vector<float>{RoundTo(kFp16, 0.1f), 0});
    ADA_REQUIRE_EXIT(
        Run({"convert", "a.safetensors", "a.safetensors", "--format", "fp16"}, folder.path()), 0);
    CHECK(folder.Read("a.safetensors") == once);

    const Outcome nowhere = Run(
        {"convert", "a.safetensors", "no/where.safetensors", "--format", "fp16"}, folder.path());
    ADA_CHECK_EXIT(nowhere, 6);
    CHECK(Contains(nowhere.err, "no/where.safetensors"));
    const Outcome full =
        Run({"convert", "a.safetensors", "a.safetensors", "--format", "bf16"}, folder.path(), 16);
    ADA_CHECK_EXIT(full, 6);
    CHECK(folder.Read("a.safetensors") == once);
  }
}

}  // namespace
}  // namespace ada::testing
