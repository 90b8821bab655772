// Arrays of images whose channels stand last or first.
#include "data/tensors/arrays.h"

#include <doctest/doctest.h>

#include "data/batch_maker.h"
#include "data/readers.h"
#include "io/tensor_files/safetensors.h"
#include "made_zip.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

using Shape = std::vector<std::int64_t>;

TensorInFile Images(const Shape& shape) {
  TensorInFile images;
  images.name = "train.images";
  images.place = "F: tensor train.images";
  images.shape = shape;
  return images;
}

// What kAuto makes of a shape: "hwc", "chw" or "refused".
std::string Auto(const Shape& shape) {
  try {
    return LayoutOf(Images(shape)) == ArrayLayout::kChw ? "chw" : "hwc";
  } catch (const DataError&) {
    return "refused";
  }
}

std::string Npy(const std::string& descr, const Shape& shape, const std::string& data) {
  std::string dims;
  for (const std::int64_t size : shape) dims += std::to_string(size) + ", ";
  const std::string header =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + dims + "), }\n";
  std::string text = "\x93NUMPY";
  text += std::string("\x01\x00", 2);
  text += static_cast<char>(header.size());
  text += '\0';
  return text + header + data;
}

// The four arrays of a set whose images are `data` in `shape`, in a file of either kind.
void WriteSet(const std::string& path, DType dtype, const Shape& shape, const std::string& data) {
  const std::string labels = {0, 1, 0};
  const Shape count = {shape[0]};
  if (path.ends_with(".npz")) {
    ZipFile zip;
    const std::string descr = dtype == DType::kU8 ? "|u1" : "<f4";
    for (const char* split : {"train", "test"}) {
      zip.Add(split + std::string(".images.npy"), Npy(descr, shape, data), split[1] == 'e');
      zip.Add(split + std::string(".labels.npy"), Npy("|u1", count, labels), false);
    }
    const std::string all = zip.Finish();
    return WriteFile(path, Bytes(all.begin(), all.end()));
  }
  SafetensorsWriter writer;
  for (const char* split : {"train", "test"}) {
    writer.Add(split + std::string(".images"), dtype, shape, std::as_bytes(std::span(data)));
    writer.Add(split + std::string(".labels"), DType::kU8, count, std::as_bytes(std::span(labels)));
  }
  writer.WriteAtomically(path);
}

// Three images of 2 rows, 5 columns and 3 channels whose values tell their places.
template <class T>
std::string Values(bool channels_first) {
  std::vector<T> values;
  const auto add = [&](int image, int y, int x, int c) {
    values.push_back(static_cast<T>(100 * image + 30 * y + 5 * x + c));
  };
  for (int image = 0; image < 3; ++image) {
    if (channels_first)
      for (int c = 0; c < 3; ++c)
        for (int y = 0; y < 2; ++y)
          for (int x = 0; x < 5; ++x) add(image, y, x, c);
    else
      for (int y = 0; y < 2; ++y)
        for (int x = 0; x < 5; ++x)
          for (int c = 0; c < 3; ++c) add(image, y, x, c);
  }
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::vector<float> BatchOf(const Dataset& dataset, const LoaderSpec& changes = {}) {
  LoaderSpec spec = changes;
  spec.batch_size = 3;
  Batch batch;
  BatchMaker(dataset, spec).Make(0, &batch);
  return batch.images;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("layout: auto takes the axis of at most four values for the channels") {
    const std::pair<Shape, const char*> rows[] = {
        {{9, 32, 32, 3}, "hwc"},   {{9, 32, 48, 1}, "hwc"},    {{9, 8, 8, 16}, "hwc"},
        {{9, 3, 32, 3}, "hwc"},    {{9, 28, 28}, "hwc"},       {{9, 3, 32, 32}, "chw"},
        {{9, 1, 28, 28}, "chw"},   {{9, 4, 64, 64}, "chw"},    {{9, 3, 480, 640}, "refused"},
        {{9, 3, 7, 9}, "refused"}, {{9, 1, 128, 9}, "refused"}};
    for (const auto& [shape, layout] : rows) {
      CAPTURE(shape.at(1));
      CHECK(Auto(shape) == layout);
    }
    CHECK_THROWS_WITH_AS(LayoutOf(Images({9, 1, 128, 9})),
                         "F: tensor train.images: has the shape [9, 1, 128, 9], which may be "
                         "[images, channels, height, width], or [images, height, width, channels] "
                         "of 1 row and 9 channels; say data.layout: chw or data.layout: hwc",
                         DataError);
  }

  TEST_CASE("layout: both give the same images, of bytes and of fp32, in every kind of file") {
    const testing::TempFolder folder;
    for (const char* name : {"a.safetensors", "a.npz"}) {
      CAPTURE(name);
      const std::string path = folder / name;
      WriteSet(path, DType::kU8, {3, 2, 5, 3}, Values<std::uint8_t>(false));
      const Splits last = OpenTensors(path);
      CHECK(last.note ==
            "train.images [3, 2, 5, 3] are read as hwc: 2 rows, 5 columns, 3 channels "
            "(data.layout: auto)");
      const std::vector<float> bytes = BatchOf(last.train);
      LoaderSpec cropped;
      cropped.changes.center_crop = {2, 3};
      const std::vector<float> crops = BatchOf(last.train, cropped);
      WriteSet(path, DType::kF32, {3, 2, 5, 3}, Values<float>(false));
      const std::vector<float> floats = BatchOf(OpenTensors(path).train);

      WriteSet(path, DType::kU8, {3, 3, 2, 5}, Values<std::uint8_t>(true));
      const Splits first = OpenTensors(path, ArrayLayout::kChw);
      CHECK(first.note.empty());
      CHECK(first.train.height == 2);
      CHECK(first.train.width == 5);
      CHECK(first.train.channels == 3);
      CHECK(first.train.store->memory() == 90);
      CHECK(BatchOf(first.train) == bytes);
      CHECK(BatchOf(first.test) == bytes);
      CHECK(BatchOf(first.train, cropped) == crops);
      WriteSet(path, DType::kF32, {3, 3, 2, 5}, Values<float>(true));
      CHECK(BatchOf(OpenTensors(path, ArrayLayout::kChw).train) == floats);
    }
  }

  TEST_CASE("layout: hwc may say what looks like chw, and the test images follow") {
    const testing::TempFolder folder;
    const std::string path = folder / "a.safetensors";
    WriteSet(path, DType::kU8, {3, 3, 2, 5}, Values<std::uint8_t>(true));
    const Splits rows = OpenTensors(path, ArrayLayout::kHwc);
    CHECK(rows.train.height == 3);
    CHECK(rows.test.channels == 5);
    CHECK(MessageOf(folder.path(), [&] { OpenTensors(path); })
              .starts_with("DIR/a.safetensors: tensor train.images: has the shape [3, 3, 2, 5], "
                           "which may be"));
  }
}

}  // namespace ada::data
