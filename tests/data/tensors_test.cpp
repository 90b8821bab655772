// Arrays of one's own: safetensors and .npz, stored and deflated, and everything that is refused.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "data/batch_maker.h"
#include "data/loader.h"
#include "data/readers.h"
#include "data/tensors/arrays.h"
#include "data/tensors/tensor_file.h"
#include "io/tensor_files/safetensors.h"
#include "made_zip.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

// One array of a file to be made.
struct Array {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};

template <class T>
Array Make(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(values.data());
  return {name, dtype, std::move(shape), Bytes(bytes, bytes + values.size() * sizeof(T))};
}

// Three training images and two test images of 2x2x3 bytes, classes 0 to 2.
std::vector<Array> Good() {
  std::vector<std::uint8_t> train(36), test(24);
  for (std::size_t i = 0; i < train.size(); ++i) train[i] = static_cast<std::uint8_t>(i * 7);
  for (std::size_t i = 0; i < test.size(); ++i) test[i] = static_cast<std::uint8_t>(200 - i);
  return {Make("train.images", DType::kU8, {3, 2, 2, 3}, train),
          Make("train.labels", DType::kI64, {3}, std::vector<std::int64_t>{2, 0, 1}),
          Make("test.images", DType::kU8, {2, 2, 2, 3}, test),
          Make("test.labels", DType::kU8, {2}, std::vector<std::uint8_t>{1, 1})};
}

void WriteSafetensors(const std::string& path, const std::vector<Array>& arrays,
                      const std::map<std::string, std::string>& metadata = {}) {
  SafetensorsWriter writer;
  writer.SetMetadata(metadata);
  for (const Array& array : arrays)
    writer.Add(array.name, array.dtype, array.shape, std::as_bytes(std::span(array.bytes)));
  writer.WriteAtomically(path);
}

std::string Npy(const std::string& header, const Bytes& data) {
  std::string text = "\x93NUMPY";
  text += std::string("\x01\x00", 2);
  text += static_cast<char>(header.size() & 255);
  text += static_cast<char>(header.size() >> 8);
  return text + header + std::string(data.begin(), data.end());
}

std::string Npy(const Array& array) {
  std::string shape;
  for (const std::int64_t size : array.shape) shape += std::to_string(size) + ", ";
  const std::string descr = array.dtype == DType::kU8    ? "|u1"
                            : array.dtype == DType::kF32 ? "<f4"
                                                         : "<i8";
  return Npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }\n",
             array.bytes);
}

Bytes Npz(const std::vector<Array>& arrays, bool deflated) {
  ZipFile zip;
  for (const Array& array : arrays) zip.Add(array.name + ".npy", Npy(array), deflated);
  const std::string all = zip.Finish();
  return Bytes(all.begin(), all.end());
}

std::string Refused(const testing::TempFolder& folder, const std::vector<Array>& arrays,
                    const std::map<std::string, std::string>& metadata = {}) {
  WriteSafetensors(folder / "a.safetensors", arrays, metadata);
  return MessageOf(folder.path(), [&] { OpenTensors(folder / "a.safetensors"); });
}

Batch FirstOf(const Dataset& dataset) {
  LoaderSpec spec;
  spec.batch_size = 3;
  Batch batch;
  BatchMaker(dataset, spec).Make(0, &batch);
  return batch;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tensors: safetensors, and .npz stored and deflated, hold the same images") {
    const testing::TempFolder folder;
    WriteSafetensors(folder / "a.safetensors", Good());
    WriteFile(folder / "stored.npz", Npz(Good(), false));
    WriteFile(folder / "packed.npz", Npz(Good(), true));
    for (const char* name : {"a.safetensors", "stored.npz", "packed.npz"}) {
      const Splits splits = OpenTensors(folder / name);
      CHECK(splits.train.labels == std::vector<Label>{2, 0, 1});
      CHECK(splits.test.labels == std::vector<Label>{1, 1});
      CHECK(splits.train.classes == 3);
      CHECK(splits.class_names.empty());
      const Batch batch = FirstOf(splits.train);
      REQUIRE(batch.images.size() == 36);
      for (std::size_t i = 0; i < 36; ++i)
        CHECK(batch.images[i] == static_cast<float>(static_cast<std::uint8_t>(i * 7)) / 255.0f);
      Dataset rest = OpenTensors(folder / name).train;
      const Dataset last = SplitLast(rest, 1);
      CHECK(FirstOf(last).images ==
            std::vector<float>(batch.images.begin() + 24, batch.images.end()));
      CHECK(last.NumberInFiles(0) == 2);
    }
  }

  TEST_CASE(
      "tensors: fp32 is taken as it is, or as (x - mean) / std; what is not finite is named") {
    const testing::TempFolder folder;
    std::vector<Array> arrays = Good();
    std::vector<float> values(12);
    for (std::size_t i = 0; i < 12; ++i) values[i] = static_cast<float>(i) - 3.5f;
    arrays[0] = Make("train.images", DType::kF32, {3, 2, 2}, values);  // gray
    arrays[2] = Make("test.images", DType::kF32, {2, 2, 2, 1}, std::vector<float>(8, NAN));
    WriteSafetensors(folder / "a.safetensors", arrays);
    const Splits splits = OpenTensors(folder / "a.safetensors");
    CHECK(splits.train.channels == 1);
    CHECK(FirstOf(splits.train).images == values);
    LoaderSpec spec;
    spec.workers = 0;
    spec.mean = {0.25};
    spec.std = {0.5};
    const Batch batch = Loader(splits.train, spec).Next();
    for (std::size_t i = 0; i < 12; ++i) CHECK(batch.images[i] == (values[i] - 0.25f) / 0.5f);
    CHECK(MessageOf(folder.path(), [&] { Loader(splits.test, spec).Next(); }) ==
          "DIR/a.safetensors: tensor test.images: image 0 holds a NaN or an infinity; expected "
          "finite values");
    spec.changes.resize.shorter = 4;
    CHECK(MessageOf<ConfigError>("no folder", [&] {
            Loader loader(splits.train, spec);
          }).find("images in fp32 are taken as they are") != std::string::npos);
  }

  TEST_CASE("tensors: what is refused names file and tensor") {
    const testing::TempFolder folder;
    const auto with = [](std::size_t at, const Array& array) {
      std::vector<Array> arrays = Good();
      arrays[at] = array;
      return arrays;
    };
    const std::string images = "DIR/a.safetensors: tensor train.images: ";
    const std::string labels = "DIR/a.safetensors: tensor train.labels: ";
    CHECK(Refused(folder, Good()) == "");
    std::vector<Array> three = Good();
    three.pop_back();
    CHECK(Refused(folder, three) ==
          "DIR/a.safetensors: holds no tensor test.labels; expected train.images, train.labels, "
          "test.images, test.labels; it has train.images, train.labels, test.images");
    const auto label = [&](std::vector<std::int64_t> values) {
      const auto count = static_cast<std::int64_t>(values.size());
      return Refused(folder, with(1, Make("train.labels", DType::kI64, {count}, values)));
    };
    CHECK(label({0, -1, 1}) == labels + "image 1 has label -1; expected 0 to 65535");
    CHECK(label({0, 1, 65536}) == labels + "image 2 has label 65536; expected 0 to 65535");
    CHECK(label({0, 1}) ==
          labels + "has the shape [2]; expected [3], one label an image of train.images");
    CHECK(label({0, 0, 0}) ==
          "DIR/a.safetensors: tensor test.labels: image 0 has label 1; expected "
          "0 to 0, since that is the largest label of train.labels");
    CHECK(Refused(folder, with(1, Make("train.labels", DType::kI8, {3},
                                       std::vector<std::int8_t>{1, -7, 1}))) ==
          labels + "image 1 has label -7; expected 0 to 65535");
    CHECK(Refused(folder, with(1, Make("train.labels", DType::kU64, {3},
                                       std::vector<std::uint64_t>{1, ~0ull, 1}))) ==
          labels + "image 1 has label 18446744073709551615; expected 0 to 65535");
    CHECK(Refused(folder, with(1, Make("train.labels", DType::kF32, {3}, std::vector<float>(3)))) ==
          labels + "elements are F32; expected whole numbers (I64, U8, ...)");
    CHECK(Refused(folder, with(0, Make("train.images", DType::kF64, {3, 1, 1, 1},
                                       std::vector<double>(3)))) ==
          images + "elements are F64; expected U8 (0 to 255) or F32 (taken as they are)");
    CHECK(Refused(folder, with(0, Make("train.images", DType::kU8, {3, 4}, Bytes(12)))) ==
          images +
              "has the shape [3, 4]; expected [images, height, width, channels] or [images, "
              "channels, height, width], or [images, height, width] of grey ones");
    CHECK(Refused(folder, with(0, Make("train.images", DType::kU8, {0, 2, 2, 3}, Bytes()))) ==
          images + "has the shape [0, 2, 2, 3]: no images");
    CHECK(Refused(folder, with(0, Make("train.images", DType::kU8, {3, 3, 8, 6}, Bytes(432)))) ==
          images +
              "has the shape [3, 3, 8, 6], which may be [images, channels, height, width], or "
              "[images, height, width, channels] of 3 rows and 6 channels; say data.layout: chw or "
              "data.layout: hwc");
    CHECK(
        Refused(folder,
                with(2, Make("test.images", DType::kF32, {2, 2, 2, 3}, std::vector<float>(24)))) ==
        "DIR/a.safetensors: tensor test.images: elements are F32; expected U8, as in train.images "
        "(U8 is divided by 255, F32 taken as it is)");
    CHECK(Refused(folder, with(2, Make("test.images", DType::kU8, {2, 2, 2, 1}, Bytes(8)))) ==
          "DIR/a.safetensors: tensor test.images: has the shape [2, 2, 2, 1], images of 1 "
          "channels; expected 3, as in train.images");
    CHECK(Refused(folder, Good(), {{"classes", "cat, dog"}}) ==
          labels + "image 0 has label 2; expected 0 to 1, since the metadata name 2 classes");
    CHECK(Refused(folder, Good(), {{"classes", "[1, 2]"}})
              .starts_with("DIR/a.safetensors: metadata classes: begins like a JSON list and is "
                           "none of texts"));
  }

  TEST_CASE("tensors: names of classes, as a JSON list or between commas") {
    const auto names = [](const std::string& text) {
      return ClassesOfMetadata({{"classes", text}}, "F");
    };
    CHECK(names("[\"a, b\", \"é\"]") == std::vector<std::string>{"a, b", "é"});
    CHECK(names("cat, dog ,T-shirt/top") == std::vector<std::string>{"cat", "dog", "T-shirt/top"});
    CHECK(ClassesOfMetadata({}, "F").empty());
    for (const char* bad :
         {"", "a,,b", "[]", "[\"\"]", "[\"a\"", "[[\"a\"]]", "[1]", "a,b,a", "[\"a\", \"a\"]"})
      CHECK_THROWS_AS(names(bad), DataError);
  }

  TEST_CASE("npy: headers that are read, and those that are refused") {
    const auto parse = [](const std::string& text) {
      return ParseNpyHeader(std::as_bytes(std::span(text)), "A");
    };
    const auto header = [&](const std::string& text) { return parse(Npy(text, {})); };
    const NpyHeader good =
        header("{'shape': (3,), \"descr\": '<u2', 'fortran_order': True, }      \n");
    CHECK(good.dtype == DType::kU16);
    CHECK(good.shape == std::vector<std::int64_t>{3});
    CHECK(header("{'descr': '|u1', 'fortran_order': False, 'shape': ()}").shape.empty());
    const auto refusal = [&](const std::string& text) {
      return MessageOf("no folder", [&] { header(text); });
    };
    const std::string rest = "', 'fortran_order': False, 'shape': (2, 3)}";
    CHECK(refusal("{'descr': '|O" + rest) ==
          "A: holds Python objects, which only Python can read; expected an array of numbers");
    CHECK(refusal("{'descr': '>f4" + rest).starts_with("A: holds big-endian numbers (>f4)"));
    CHECK(refusal("{'descr': '<c8" + rest).starts_with("A: holds elements of type '<c8'"));
    CHECK(refusal("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 3)}") ==
          "A: holds records; expected an array of numbers");
    CHECK(refusal("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}") ==
          "A: is stored in Fortran order; expected C order: numpy.ascontiguousarray(array)");
    CHECK(
        refusal("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}") ==
        "A: the .npy header claims more elements than a file can hold");
    for (const char* bad : {"", "{", "{}", "{'descr'", "{'descr': '<f4'}",
                            "{'descr': '<f4', 'fortran_order': Maybe, 'shape': ()}",
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
                            "{'descr': '<f4', 'fortran_order': False, 'shape': (2} }",
                            "{'descr': '<f4', 'fortran_order': False, 'shape': ()} x",
                            "{'descr': '<f4', 'descr': '<f4'}"})
      CHECK(refusal(bad).starts_with("A: the .npy header is "));
    const std::string whole =
        Npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", {});
    for (std::size_t length = 0; length < whole.size(); ++length)
      CHECK_THROWS_AS(parse(whole.substr(0, length)), DataError);
  }

  TEST_CASE("npz: cut anywhere, or with any byte changed, it is read or refused") {
    const testing::TempFolder folder;
    const std::string pixels{0, 7, 14, 21, 28, 35};  // that the images begin with
    for (const bool deflated : {false, true}) {
      const Bytes whole = Npz(Good(), deflated);
      const std::string path = folder / "a.npz";
      const auto read = [&](const Bytes& bytes) {
        WriteFile(path, bytes);
        return MessageOf(folder.path(), [&] { FirstOf(OpenTensors(path).train); });
      };
      CHECK(read(whole) == "");
      for (std::size_t length = 0; length < whole.size(); length += 3)
        CHECK(read(Bytes(whole.begin(), whole.begin() + length)) != "");
      int refused = 0;
      for (std::size_t at = 0; at < whole.size(); ++at) {
        Bytes changed = whole;
        changed[at] ^= 0x81;
        refused += read(changed).empty() ? 0 : 1;
      }
      CHECK(refused > 0);
    }
    const Bytes whole = Npz(Good(), false);
    const auto begin = std::search(whole.begin(), whole.end(), pixels.begin(), pixels.end());
    for (std::ptrdiff_t at = begin - whole.begin(), end = at + 36; at < end; ++at) {
      Bytes changed = whole;
      changed[static_cast<std::size_t>(at)] ^= 1;
      WriteFile(folder / "a.npz", changed);
      const Splits splits =
          OpenTensors(folder / "a.npz");  // images are looked at when they are needed
      for (int again = 0; again < 2; ++again)
        CHECK(MessageOf(folder.path(), [&] { FirstOf(splits.train); }) ==
              "DIR/a.npz: tensor train.images: the data is damaged: its CRC-32 is another one than "
              "the file says");
    }
    ZipFile zip;
    zip.Add("notes.txt", "hello", false);
    const std::string text = zip.Finish();
    WriteFile(folder / "a.npz", Bytes(text.begin(), text.end()));
    CHECK(MessageOf(folder.path(), [&] { OpenTensors(folder / "a.npz"); }) ==
          "DIR/a.npz: holds notes.txt, which is no array (.npy)");
    // Names of members are shown as they are in every message: a line end is none of it.
    const auto refusal = [&](const std::vector<std::string>& names) {
      ZipFile made;
      for (const std::string& name : names) made.Add(name, "no array", false);
      const std::string bytes = made.Finish();
      WriteFile(folder / "a.npz", Bytes(bytes.begin(), bytes.end()));
      return MessageOf(folder.path(), [&] { OpenTensors(folder / "a.npz"); });
    };
    const std::string nul("a\0b.npy", 7);
    CHECK(refusal({"a\nb.txt"}) == "DIR/a.npz: holds a\\x0ab.txt, which is no array (.npy)");
    CHECK(refusal({"a\nb.npy"}) ==
          "DIR/a.npz: tensor a\\x0ab: is no .npy array: it begins otherwise");
    CHECK(refusal({nul}) == "DIR/a.npz: tensor a\\x00b: is no .npy array: it begins otherwise");
    CHECK(refusal({"a\nb.npy", "a\nb.npy"}).find(": the member a\\x0ab.npy is there twice") !=
          std::string::npos);
    WriteFile(folder / "a.npz", {});
    CHECK(MessageOf(folder.path(), [&] { OpenTensors(folder / "a.npz"); }) ==
          "DIR/a.npz: cannot be mapped into memory: the file is empty");
  }

  TEST_CASE("tensors: a file that is cut while it is read is an error, not a crash") {
    const testing::TempFolder folder;
    WriteSafetensors(folder / "a.safetensors", Good());
    const Splits splits = OpenTensors(folder / "a.safetensors");
    std::filesystem::resize_file(folder / "a.safetensors", 100);
    CHECK(MessageOf(folder.path(), [&] {
            FirstOf(splits.train);
          }).starts_with("DIR/a.safetensors: was cut to 100 of its "));
  }
}

}  // namespace ada::data
