// What Python wrote is read, and what is written is read back, byte for byte the same each time.
#include "io/tensor_files/safetensors.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "error.h"
#include "io/hash.h"
#include "io/small_files.h"
#include "number/independent.h"
#include "temp_folder.h"

namespace ada {
namespace {

using test::Get;
using test::Put;
using testing::TempFolder;

template <class T>
std::span<const std::byte> BytesOfVector(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::string ErrorOf(const SafetensorsFile& file, const char* tensor) {
  try {
    file.ReadF32(tensor);
  } catch (const DataError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a file that is cut while it is open is an error of the read") {
    TempFolder scratch;
    const std::string path = scratch / "cut.safetensors";
    const std::vector<float> values(100'000, 1.0f);
    SafetensorsWriter writer;
    writer.Add("x", {100'000}, values);
    writer.WriteAtomically(path);
    const SafetensorsFile file = SafetensorsFile::Open(path);
    std::filesystem::resize_file(path, 5000);
    CHECK_THROWS_WITH_AS(file.ReadF32("x"), doctest::Contains("byte 5000: the file has become"),
                         DataError);
  }

  TEST_CASE("a file written by Python") {
    const std::string path = ADA_SOURCE_DIR "/tests/golden/safetensors/python.safetensors";
    const SafetensorsFile file = SafetensorsFile::Open(path);
    CHECK(file.metadata() ==
          std::map<std::string, std::string>{{"format", "pt"}, {"k\u00fc", "v"}});
    REQUIRE(file.entries().size() == 12);
    struct {
      const char* name;
      DType dtype;
      std::vector<std::int64_t> shape;
    } const table[] = {
        {"conv1.weight", DType::kF32, {2, 3, 2, 2}},
        {"values.f64", DType::kF64, {7}},
        {"values.f16", DType::kF16, {7}},
        {"values.bf16", DType::kBF16, {7}},
        {"values.e4m3", DType::kF8E4M3, {3}},
        {"values.e5m2", DType::kF8E5M2, {3}},
        {"bn1.num_batches_tracked", DType::kI64, {}},
        {"count.i32", DType::kI32, {2, 1}},
        {"bytes.u8", DType::kU8, {3}},
        {"flags", DType::kBool, {3}},
        {"empty", DType::kF32, {0, 4}},
        {"quote \" backslash \\ umlaut \u00fc", DType::kF32, {1}},
    };
    for (const auto& row : table) {
      INFO(std::string(row.name));
      const TensorEntry* entry = file.Find(row.name);
      REQUIRE(entry != nullptr);
      CHECK(entry->name == row.name);
      CHECK(entry->dtype == row.dtype);
      CHECK(entry->shape == row.shape);
      CHECK(file.Bytes(row.name).size() ==
            static_cast<std::size_t>(entry->numel()) * BytesOf(row.dtype));
    }
    const std::vector<float> weight = file.ReadF32("conv1.weight");
    REQUIRE(weight.size() == 24);
    for (int i = 0; i < 24; ++i) CHECK(weight[static_cast<std::size_t>(i)] == i / 8.0f);
    const std::vector<float> f16 = {0, -0.0f, 1, -1.5, 65504, 0x1p-14f, 0x1p-24f};
    CHECK(file.ReadF32("values.f16") == f16);
    CHECK(std::signbit(file.ReadF32("values.f16")[1]));
    CHECK(file.ReadF32("values.bf16") ==
          std::vector<float>{0, -0.0f, 1, -1.5, 65536, 0x1p-14f, 0x1p-24f});
    CHECK(file.ReadF32("values.e4m3") == std::vector<float>{1, -448, 0x1p-9f});
    CHECK(file.ReadF32("values.e5m2") == std::vector<float>{1, 57344, -0.25f});
    const std::vector<float> thirds = file.ReadF32("values.f64");
    for (std::size_t i = 0; i < 7; ++i) {
      CHECK(thirds[i] == static_cast<float>(static_cast<double>(f16[i]) / 3));
    }
    std::int64_t tracked = 0;
    std::memcpy(&tracked, file.Bytes("bn1.num_batches_tracked").data(), 8);
    CHECK(tracked == 1234567890123);
    CHECK(file.ReadF32("empty").empty());
    CHECK(file.Find("conv1") == nullptr);
    CHECK_THROWS_WITH_AS(file.Bytes("conv1"), (path + ": has no tensor 'conv1'").c_str(),
                         DataError);
    CHECK(ErrorOf(file, "flags") == path +
                                        ": byte 1089: tensor 'flags' is BOOL; expected F64, F32, "
                                        "F16, BF16, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, "
                                        "F8_E5M2FNUZ, F8_E8M0, F6_E2M3, F6_E3M2 or F4");
  }

  TEST_CASE("every code of 8 bits is read as its value") {
    const TempFolder scratch;
    const std::string path = scratch / "codes.safetensors";
    std::vector<std::uint8_t> codes(256);
    for (std::size_t i = 0; i < 256; ++i) codes[i] = static_cast<std::uint8_t>(i);
    SafetensorsWriter writer;
    writer.Add("e4m3", DType::kF8E4M3, {16, 16}, BytesOfVector(codes));
    writer.Add("e5m2", DType::kF8E5M2, {256}, BytesOfVector(codes));
    writer.Add("e4m3fnuz", DType::kF8E4M3Fnuz, {256}, BytesOfVector(codes));
    writer.Add("e5m2fnuz", DType::kF8E5M2Fnuz, {256}, BytesOfVector(codes));
    writer.WriteAtomically(path);
    const SafetensorsFile file = SafetensorsFile::Open(path);
    const std::vector<float> e4m3 = file.ReadF32("e4m3"), e5m2 = file.ReadF32("e5m2");
    const std::vector<float> e4m3fnuz = file.ReadF32("e4m3fnuz");
    const std::vector<float> e5m2fnuz = file.ReadF32("e5m2fnuz");
    for (unsigned code = 0; code < 256; ++code) {
      CAPTURE(code);
      const auto want = [code](const NumberFormat& format) {
        return static_cast<float>(test::DecodeIndependently(format, code));
      };
      CHECK(test::Same(e4m3[code], want(kFp8E4M3)));
      CHECK(test::Same(e5m2[code], want(kFp8E5M2)));
      CHECK(test::Same(e4m3fnuz[code], want({4, 3, 8, false, true, false})));
      CHECK(test::Same(e5m2fnuz[code], want({5, 2, 16, false, true, false})));
    }
  }

  TEST_CASE("types: which hold floats") {
    for (const DType type : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3,
                             DType::kF8E5M2, DType::kF8E4M3Fnuz, DType::kF8E5M2Fnuz})
      CHECK(IsFloat(type));
    for (const DType type : {DType::kI64, DType::kI32, DType::kI16, DType::kI8, DType::kU64,
                             DType::kU32, DType::kU16, DType::kU8, DType::kBool})
      CHECK_FALSE(IsFloat(type));
  }

  TEST_CASE("the head of a file: bytes by the bits of a value") {
    const auto says = [](DType type, const std::vector<std::int64_t>& shape, const char* end) {
      return SafetensorsHead("a", type, shape)
                 .find("\"data_offsets\":[0," + std::string(end) + "]") != std::string::npos;
    };
    CHECK(says(DType::kF32, {3, 5}, "60"));
    CHECK(says(DType::kF4, {3, 6}, "9"));
    CHECK(says(DType::kF6E2M3, {4, 4}, "12"));
    CHECK_THROWS_AS(SafetensorsHead("a", DType::kF4, {3}), InternalError);
  }

  TEST_CASE("written, the same again, and read back") {
    const TempFolder scratch;
    const std::vector<float> weight = {1, -0.0f, std::numeric_limits<float>::infinity(), 1e-45f};
    const std::vector<std::uint8_t> odd = {1, 2, 3};  // leaves what follows unaligned
    const std::vector<std::uint16_t> half = {0x3C00, 0xC000};
    const std::vector<double> scalar = {0.1};
    const auto make = [&] {
      SafetensorsWriter writer;
      writer.SetMetadata({{"b", "\u00fc\"\n"}, {"a", ""}});
      writer.Add("z.odd", DType::kU8, {3}, BytesOfVector(odd));
      writer.Add("fc.weight", {2, 2}, weight);
      writer.Add("a.half", DType::kF16, {1, 2}, BytesOfVector(half));
      writer.Add("a.bf16", DType::kBF16, {2}, BytesOfVector(half));
      writer.Add("scalar \"\\", DType::kF64, {}, BytesOfVector(scalar));
      writer.Add("none", {0}, std::span<const float>());
      return writer;
    };
    const std::string path = scratch / "one", again = scratch / "two";
    const std::string hash = make().WriteAtomically(path);
    CHECK(hash == HashFile(path));
    CHECK(make().WriteAtomically(again) == hash);
    CHECK(Get(path) == Get(again));

    const SafetensorsFile file = SafetensorsFile::Open(path);
    CHECK(file.entries().front().begin % 8 == 0);
    CHECK(file.entries().back().end == std::filesystem::file_size(path));
    std::vector<std::string> names;
    for (const TensorEntry& entry : file.entries()) names.push_back(entry.name);
    CHECK(names == std::vector<std::string>{"z.odd", "fc.weight", "a.half", "a.bf16", "scalar \"\\",
                                            "none"});
    CHECK(file.metadata().at("b") == "\u00fc\"\n");
    CHECK(file.metadata().at("a") == "");
    CHECK(file.Find("fc.weight")->shape == std::vector<std::int64_t>{2, 2});
    const std::vector<float> back = file.ReadF32("fc.weight");
    CHECK(std::memcmp(back.data(), weight.data(), 16) == 0);
    CHECK(file.ReadF32("a.half") == std::vector<float>{1, -2});
    CHECK(file.ReadF32("a.bf16") == std::vector<float>{0x1p-7f, -2});
    CHECK(file.ReadF32("scalar \"\\") == std::vector<float>{0.1f});
    CHECK(file.ReadF32("none").empty());
  }

  TEST_CASE("the bytes of a small file") {
    const TempFolder scratch;
    SafetensorsWriter writer;
    const std::vector<float> one = {1};
    writer.Add("w", {1}, one);
    writer.WriteAtomically(scratch / "file");
    const std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    REQUIRE(header.size() == 54);
    CHECK(Get(scratch / "file") ==
          std::string("\x38\0\0\0\0\0\0\0", 8) + header + "  " + std::string("\0\0\x80\x3f", 4));
    SafetensorsWriter().WriteAtomically(scratch / "empty");
    CHECK(Get(scratch / "empty") == std::string("\x08\0\0\0\0\0\0\0{}      ", 16));
    CHECK(SafetensorsFile::Open(scratch / "empty").entries().empty());
  }

  TEST_CASE("a file lives on when moved or replaced") {
    const TempFolder scratch;
    const std::string path = scratch / "file";
    std::vector<float> values = {1, 2, 3};
    const auto write = [&] {
      SafetensorsWriter writer;
      writer.Add("w", {3}, values);
      writer.WriteAtomically(path);
    };
    write();
    SafetensorsFile file = SafetensorsFile::Open(path);
    values = {4, 5, 6};
    write();
    CHECK(file.ReadF32("w") == std::vector<float>{1, 2, 3});
    const SafetensorsFile moved = std::move(file);
    CHECK(moved.ReadF32("w") == std::vector<float>{1, 2, 3});
    file = SafetensorsFile::Open(path);
    CHECK(file.ReadF32("w") == values);
  }

  TEST_CASE("what the writer refuses") {
    SafetensorsWriter writer;
    const std::vector<float> two = {1, 2};
    writer.Add("w", {2}, two);
    CHECK_THROWS_WITH_AS(writer.Add("w", {2}, two), "tensor 'w' added twice", InternalError);
    CHECK_THROWS_WITH_AS(writer.Add("v", {3}, two),
                         "tensor 'v' has 8 bytes; its shape and dtype need 12", InternalError);
    CHECK_THROWS_AS(writer.Add("v", {-1, -2}, two), InternalError);
    CHECK_THROWS_AS(writer.Add("__metadata__", {2}, two), InternalError);
    CHECK_THROWS_AS(writer.Add("\xff", {2}, two), InternalError);
    CHECK_THROWS_AS(writer.Add(std::string("a\0b", 3), {2}, two), InternalError);
    CHECK_THROWS_AS(writer.WriteAtomically("/nowhere/at/all/file"), OutputError);
  }
}

}  // namespace ada
