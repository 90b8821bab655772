// IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist/): big-endian magic number, one
// 32-bit size a dimension, then unsigned bytes. Plain or .gz. Only bytes, only images and labels.
// The files say how many images there are (1 to 1,000,000), so subsets are fine; the shape must be
// the data set's.
#include <array>
#include <cstdio>
#include <optional>
#include <vector>

#include "data/catalog.h"
#include "data/dataset.h"
#include "data/input_file.h"

namespace ada::data {
namespace {

// 0x00, 0x00, the type 0x08 (unsigned byte), the number of dimensions.
constexpr std::uint32_t kImagesMagic = 0x803, kLabelsMagic = 0x801;
constexpr std::int64_t kImagesHeader = 16, kLabelsHeader = 8;
constexpr std::uint32_t kMaxImages = 1'000'000;  // what a damaged header may make us allocate

std::string Hex(std::uint32_t value) {
  char text[11];
  std::snprintf(text, sizeof text, "0x%08x", value);
  return text;
}

std::uint32_t ReadBigEndian(InputFile& file, const std::string& expected) {
  std::array<std::uint8_t, 4> bytes;
  file.Read(bytes, expected);
  return static_cast<std::uint32_t>(bytes[0]) << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3];
}

// Magic number and count of images or labels; leaves the file at byte 8. A header of images goes on
// with rows and columns, 16 bytes in all.
std::int64_t ReadStart(InputFile& file, std::uint32_t magic, std::int64_t header_bytes) {
  const std::string header = "an IDX header of " + std::to_string(header_bytes) + " bytes";
  const std::uint32_t found = ReadBigEndian(file, header);
  if (found != magic) {
    file.Fail(0, "magic number " + Hex(found),
              Hex(magic) + (magic == kImagesMagic ? " (IDX, bytes, three dimensions)"
                                                  : " (IDX, bytes, one dimension)"));
  }
  const std::uint32_t count = ReadBigEndian(file, header);
  if (count < 1 || count > kMaxImages) {
    file.Fail(4, "a header that says " + std::to_string(count) + " images",
              "1 to " + std::to_string(kMaxImages));
  }
  return count;
}

std::string SizeWords(std::int64_t header, std::int64_t count, std::int64_t each) {
  return std::to_string(header + count * each) + " bytes (header " + std::to_string(header) +
         ", then " + std::to_string(count) + " x " + std::to_string(each) + ")";
}

// Reads the header, checks it and the file's size; leaves the file at the first image.
std::int64_t StartImages(const DatasetFacts& facts, InputFile& file) {
  const std::int64_t count = ReadStart(file, kImagesMagic, kImagesHeader);
  const std::array<int, 2> sizes = {facts.height, facts.width};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint32_t found = ReadBigEndian(file, "an IDX header of 16 bytes");
    if (found != static_cast<std::uint32_t>(sizes[i])) {
      file.Fail(8 + 4 * i,
                "a header that says " + std::to_string(found) +
                    (i == 0 ? " rows an image" : " columns an image"),
                std::to_string(sizes[i]));
    }
  }
  file.ExpectSize(static_cast<std::uint64_t>(kImagesHeader + count * facts.per_image()),
                  SizeWords(kImagesHeader, count, facts.per_image()));
  return count;
}

// The same for labels; `images` is what the other file says.
void StartLabels(InputFile& file, std::int64_t images, const std::string& images_path) {
  const std::int64_t count = ReadStart(file, kLabelsMagic, kLabelsHeader);
  if (count != images) {
    file.Fail(4, std::to_string(count) + " labels",
              std::to_string(images) + ", as many as images in " + images_path);
  }
  file.ExpectSize(static_cast<std::uint64_t>(kLabelsHeader + count),
                  SizeWords(kLabelsHeader, count, 1));
}

// The two files of a split, opened, checked and at their first image and label. The order matters:
// the labels are held to the count of the images.
struct OpenSplit {
  explicit OpenSplit(const SplitFiles& files)
      : images_path(files.PathOf(files.names[0])), images(images_path, files.advice) {
    count = StartImages(files.facts, images);
    labels.emplace(files.PathOf(files.names[1]), files.advice);
    StartLabels(*labels, count, images_path);
  }
  std::string images_path;
  InputFile images;
  std::optional<InputFile> labels;
  std::int64_t count = 0;
};

std::int64_t CountImages(const SplitFiles& files) { return OpenSplit(files).count; }

void ReadSplit(const SplitFiles& files, Dataset* into) {
  OpenSplit split(files);
  const std::int64_t count = split.count, size = files.facts.per_image();
  std::vector<std::uint8_t> labels(static_cast<std::size_t>(count));
  split.labels->Read(labels, SizeWords(kLabelsHeader, count, 1));
  // Labels are read and checked before memory is taken for the images. ExpectEnd also makes gzip
  // compare its checksum.
  split.labels->ExpectEnd(SizeWords(kLabelsHeader, count, 1));
  for (std::int64_t i = 0; i < count; ++i) {
    const int label = labels[static_cast<std::size_t>(i)];
    if (label >= files.facts.classes) {
      split.labels->Fail(static_cast<std::uint64_t>(kLabelsHeader + i),
                         "label " + std::to_string(label),
                         "0 to " + std::to_string(files.facts.classes - 1));
    }
  }
  into->labels.assign(labels.begin(), labels.end());
  into->pixels.resize(static_cast<std::size_t>(count * size));
  split.images.Read(into->pixels, SizeWords(kImagesHeader, count, size));
  split.images.ExpectEnd(SizeWords(kImagesHeader, count, size));
}

// One task reads both files, since the count of images says how many labels there must be.
void AddIdxTasks(const SplitFiles& files, Dataset* into,
                 std::vector<std::function<void()>>* tasks) {
  tasks->push_back([files, into] { ReadSplit(files, into); });
}

}  // namespace

extern const FileLayout kIdxFiles;
const FileLayout kIdxFiles = {true, AddIdxTasks, CountImages};

}  // namespace ada::data
