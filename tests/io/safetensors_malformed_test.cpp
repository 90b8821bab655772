// Files that must be refused, each with its exact message.
#include <doctest/doctest.h>

#include "error.h"
#include "io/small_files.h"
#include "io/tensor_files/safetensors.h"
#include "number/random.h"
#include "temp_folder.h"

namespace ada {
namespace {

std::string WithLength(std::uint64_t length, std::string_view rest) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(length >> (8 * i) & 0xFF);
  return file.append(rest);
}

// A file with this header and `data` zero bytes.
std::string WithHeader(std::string_view json, std::size_t data = 0) {
  return WithLength(json.size(), std::string(json) + std::string(data, '\0'));
}

// One F32 tensor `w` with this shape and these offsets.
std::string OneTensor(const std::string& shape, const std::string& offsets, std::size_t data) {
  return WithHeader(
      R"({"w":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}", data);
}

// What Open says about a file of these bytes, without the path; "" where it is accepted.
std::string Problem(const std::string& bytes) {
  const testing::TempFolder scratch;
  const std::string path = scratch / "bad.safetensors";
  test::Put(path, bytes);
  try {
    SafetensorsFile::Open(path);
  } catch (const DataError& error) {
    const std::string what = error.what();
    CHECK(what.starts_with(path + ": "));
    return what.substr(path.size() + 2);
  }
  return "";
}

struct Case {
  std::string bytes, message;
};

void CheckAll(const std::vector<Case>& table) {
  for (const Case& row : table) CHECK(Problem(row.bytes) == row.message);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("length of the header") {
    CheckAll({
        {"", "byte 0: the file ends within its first 8 bytes, the header's length"},
        {"\x10", "byte 1: the file ends within its first 8 bytes, the header's length"},
        {WithLength(0, ""), "byte 8: a safetensors header starts with '{'"},
        {WithLength(3, "{}"),
         "byte 0: the header's length is 3 bytes, but the file has 10 in all: it is truncated, or "
         "no safetensors file"},
        {WithLength(~std::uint64_t{0}, "{}"),
         "byte 0: the header's length is 18446744073709551615 bytes, but the file has 10 in all: "
         "it is truncated, or no safetensors file"},
        {WithHeader(" {}"), "byte 8: a safetensors header starts with '{'"},
        {WithHeader("{}"), ""},
        {WithHeader("{}      "), ""},
        {WithHeader("{}", 1), "byte 10: 1 bytes after the last tensor"},
    });
  }

  TEST_CASE("a length that the file has, but no header may have") {
    const testing::TempFolder scratch;
    const std::string path = scratch / "huge";
    test::Put(path, WithLength(100'000'001, "{"));
    std::filesystem::resize_file(path, 200'000'000);  // sparse: takes no space
    CHECK_THROWS_WITH_AS(SafetensorsFile::Open(path),
                         (path + ": byte 0: the header's length is 100000001 bytes, more than the "
                                 "100000000 that are allowed")
                             .c_str(),
                         DataError);
  }

  TEST_CASE("JSON") {
    const std::string invalid = "the header is not valid JSON (UTF-8)";
    const std::string expected =
        "; expected {name: {dtype, shape, data_offsets}} and __metadata__ of strings";
    CheckAll({
        {WithHeader("{"), "near byte 9: " + invalid},
        {WithHeader("{} x"), "near byte 12: " + invalid},
        {WithHeader("{\"w\":}"), "near byte 14: " + invalid},
        {WithHeader("{\"\xff\":{}}"), "near byte 11: " + invalid},
        {WithHeader(R"({"w":1})"), "near byte 15: unexpected a number at key 'w'" + expected},
        {WithHeader(R"({"w":[]})"), "near byte 14: unexpected an array at key 'w'" + expected},
        {WithHeader(R"({"w":null})"), "near byte 17: unexpected null at key 'w'" + expected},
        {WithHeader(R"({"__metadata__":null})"), ""},
        {WithHeader(R"({"__metadata__":null,"__metadata__":{}})"),
         "near byte 43: duplicate key '__metadata__'"},
        {WithHeader(R"({"__metadata__":{"a":null}})"),
         "near byte 33: unexpected null at key 'a'" + expected},
        {WithHeader(R"({"__metadata__":{"a":1}})"),
         "near byte 31: unexpected a number at key 'a'" + expected},
        {WithHeader(R"({"__metadata__":{"a":{}}})"),
         "near byte 30: unexpected an object at key 'a'" + expected},
        {WithHeader(R"({"__metadata__":{"a":"","a":""}})"), "near byte 35: duplicate key 'a'"},
        {WithHeader(R"({"__metadata__":{},"__metadata__":{}})"),
         "near byte 41: duplicate key '__metadata__'"},
        {WithHeader(R"({"a\u0000b":{}})"), "near byte 19: a name holds a NUL character"},
        {WithHeader("{\"w\":" + std::string(1'000'000, '[')),
         "near byte 14: unexpected an array at key 'w'" + expected},
    });
  }

  TEST_CASE("keys of a tensor") {
    const std::string good = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
    const auto tensor = [](const std::string& inside) {
      return WithHeader("{\"w\":{" + inside + "}}", 4);
    };
    CheckAll({
        {tensor(good), ""},
        {tensor(R"("data_offsets":[0,4],"shape":[1],"dtype":"F32")"), ""},
        {WithHeader("{\"w\":{" + good + "},\"w\":{" + good + "}}", 4),
         "near byte 65: duplicate key 'w'"},
        {tensor(good + R"(,"dtype":"F32")"), "near byte 68: duplicate key 'dtype'"},
        {tensor(good + R"(,"type":"F32")"),
         "near byte 67: unknown key 'type' in tensor 'w' (known: dtype, shape, data_offsets)"},
        {tensor(R"("dtype":"F32","shape":[1])"),
         "near byte 40: tensor 'w' needs the keys dtype, shape and data_offsets"},
        {tensor(R"("data_offsets":[0])"),
         "near byte 32: tensor 'w' needs two data_offsets, begin and end"},
    });
    const std::string expected =
        "; expected {name: {dtype, shape, data_offsets}} and __metadata__ of strings";
    CheckAll({
        {tensor(R"("dtype":1)"), "near byte 24: unexpected a number at key 'dtype'" + expected},
        {tensor(R"("shape":1)"), "near byte 24: unexpected a number at key 'shape'" + expected},
        {tensor(R"("shape":[-1])"),
         "near byte 26: unexpected a negative number at key 'shape'" + expected},
        {tensor(R"("shape":[1.0])"),
         "near byte 27: unexpected a number that is no 64-bit integer at key 'shape'" + expected},
        {tensor(R"("shape":[18446744073709551616])"),
         "near byte 44: unexpected a number that is no 64-bit integer at key 'shape'" + expected},
        {tensor(R"("shape":[9223372036854775808])"),
         "near byte 43: unexpected a number at key 'shape'" + expected},
        {tensor(R"("shape":[[1]])"), "near byte 24: unexpected an array at key 'shape'" + expected},
        {tensor(R"("shape":["1"])"), "near byte 26: unexpected a string at key 'shape'" + expected},
        {tensor(R"("data_offsets":[0,4,8])"),
         "near byte 36: unexpected a number at key 'data_offsets'" + expected},
    });
    std::string ones = "1";
    for (int i = 0; i < 32; ++i) ones += ",1";
    CHECK(Problem(tensor("\"shape\":[" + ones + "]")) ==
          "near byte 89: tensor 'w' has more than 32 dimensions");
  }

  TEST_CASE("where tensors lie") {
    CheckAll({
        {OneTensor("[2]", "[0,8]", 8), ""},
        {OneTensor("[]", "[0,4]", 4), ""},
        {OneTensor("[0]", "[0,0]", 0), ""},
        {OneTensor("[0,9223372036854775807,9]", "[0,0]", 0),
         "byte 84: tensor 'w' has a shape whose size overflows"},
        {OneTensor("[2]", "[0,8]", 7),
         "byte 62: tensor 'w' ends at byte 70, but the file has 69 (is it truncated?)"},
        {OneTensor("[2]", "[0,8]", 9), "byte 70: 1 bytes after the last tensor"},
        {OneTensor("[2]", "[0,4]", 4),
         "byte 62: tensor 'w' needs 8 bytes for its shape and dtype, but has data_offsets [0, 4]"},
        {OneTensor("[1]", "[4,8]", 8),
         "byte 62: tensor 'w' leaves a hole before it, data_offsets [4, 8]"},
        {OneTensor("[1]", "[8,4]", 8),
         "byte 62: tensor 'w' has data_offsets [8, 4] that run backwards"},
        {OneTensor("[4611686018427387904]", "[0,0]", 0),
         "byte 80: tensor 'w' has a shape whose size overflows"},
        {OneTensor("[4294967296,4294967296]", "[0,0]", 0),
         "byte 82: tensor 'w' has a shape whose size overflows"},
        {OneTensor("[2]", "[18446744073709551608,18446744073709551615]", 8),
         "byte 100: tensor 'w' leaves a hole before it, data_offsets [18446744073709551608, "
         "18446744073709551615]"},
    });
  }

  TEST_CASE("tensors beside each other") {
    const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
      return WithHeader(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                            R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                        data);
    };
    CheckAll({
        {two("[0,4]", "[4,8]", 8), ""},
        {two("[4,8]", "[0,4]", 8), ""},  // any order in the header
        {two("[0,4]", "[2,6]", 6),
         "byte 117: tensor 'b' overlaps the tensor before it, data_offsets [2, 6]"},
        {two("[0,4]", "[0,4]", 4),
         "byte 117: tensor 'b' overlaps the tensor before it, data_offsets [0, 4]"},
        {two("[0,4]", "[5,9]", 9),
         "byte 117: tensor 'b' leaves a hole before it, data_offsets [5, 9]"},
        {two("[0,4]", "[4,8]", 10), "byte 121: 2 bytes after the last tensor"},
    });
  }

  TEST_CASE("every cut of a good file is refused") {
    const std::string good = OneTensor("[2,2]", "[0,16]", 16);
    REQUIRE(Problem(good) == "");
    for (std::size_t size = 0; size < good.size(); ++size) {
      CAPTURE(size);
      CHECK(Problem(good.substr(0, size)) != "");
    }
  }

  TEST_CASE("a damaged file is refused, or every range it gives lies within it") {
    const std::string good =
        test::Get(ADA_SOURCE_DIR "/tests/golden/safetensors/python.safetensors");
    REQUIRE(good.size() == 1092);
    const testing::TempFolder scratch;
    const std::string path = scratch / "damaged";
    RandomStream random(11, StreamId("damage"));
    int refused = 0;
    for (int i = 0; i < 3000; ++i) {
      std::string bytes = good;
      for (std::uint32_t flips = 1 + random.Below(3); flips > 0; --flips) {
        bytes[random.Below(900)] = static_cast<char>(random.NextU32());
      }
      std::filesystem::remove(path);  // overwriting in place waits for the disk on ext4
      test::Put(path, bytes);
      try {
        const SafetensorsFile file = SafetensorsFile::Open(path);
        for (const TensorEntry& entry : file.entries()) {
          REQUIRE(entry.begin <= entry.end);
          REQUIRE(entry.end <= bytes.size());
          if (entry.dtype == DType::kOther) continue;  // its size is not known
          REQUIRE(static_cast<std::uint64_t>(entry.numel()) *
                      static_cast<std::uint64_t>(BitsOf(entry.dtype)) ==
                  8 * (entry.end - entry.begin));
        }
      } catch (const DataError&) {
        ++refused;
      }
    }
    CHECK(refused > 1000);
    CHECK(refused < 3000);  // some flips only change a name or a value
  }

  TEST_CASE("files of PyTorch, NumPy and others: what they are, and the lines that convert them") {
    // Local file headers of zip archives, and beginnings of other kinds.
    const auto zip = [](const std::string& entry) {
      const std::string head = std::string("PK\x03\x04\0\0\x08\x08", 8) + std::string(18, '\0');
      return head + static_cast<char>(entry.size()) + std::string(3, '\0') + entry + "and so on";
    };
    struct Foreign {
      std::string bytes, is, lines;
    };
    const std::string legacy = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.more";
    for (const Foreign& row : std::vector<Foreign>{
             {zip("model/data.pkl"), "is a file of PyTorch", "torch.load(\"PATH\", map_location"},
             {legacy, "is a file of PyTorch", "torch.load(\"PATH\", map_location"},
             {zip("fc.weight.npy"), "is an archive of NumPy", "(dict(numpy.load(\"PATH\")), \""},
             {"\x93NUMPY\x01.v..{", "is an array of NumPy",
              "{\"tensor\": numpy.load(\"PATH\")}, \""},
             {"\x89HDF\r\n\x1a\n....", "is a file of Keras or HDF5", "safetensors.numpy"},
             {zip("readme.txt"), "is a zip archive", ""},
             {std::string("\x80\x04\x95\0\0\0\0\0\0", 9), "is a pickle of Python", "save_file"}}) {
      CAPTURE(row.is);
      std::string problem = Problem(row.bytes);
      CHECK(problem.starts_with(row.is));
      CHECK(problem.find("not safetensors") != std::string::npos);
      const std::size_t path = problem.find("load(\"");
      if (path != std::string::npos)
        problem.replace(path + 6, problem.find('"', path + 6) - path - 6, "PATH");
      CHECK(problem.find(row.lines) != std::string::npos);
      if (path != std::string::npos)
        CHECK(problem.find("/bad.safetensors\")") != std::string::npos);
    }
    // A header of 640 bytes begins as a pickle does, and is none.
    const std::string json = "{}" + std::string(638, ' ');
    CHECK(Problem(WithHeader(json)).empty());
  }

  TEST_CASE("things that are no files") {
    const testing::TempFolder scratch;
    CHECK_THROWS_WITH_AS(SafetensorsFile::Open(scratch.path()),
                         (scratch.path() + ": is not a regular file").c_str(), DataError);
    CHECK_THROWS_WITH_AS(
        SafetensorsFile::Open(scratch / "none"),
        (scratch / "none" + ": cannot be opened: No such file or directory").c_str(), DataError);
  }
}

}  // namespace ada
