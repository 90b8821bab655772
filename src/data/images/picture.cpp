#include "data/images/picture.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/data_files.h"
#include "core/error.h"
#include "core/machine_error.h"
#include "core/system_call.h"
#include "core/text.h"
#include "data/images/formats.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{2} << 30;
constexpr std::size_t kBeginning = 16 << 10;  // bytes of a file: most headers end there

struct PictureFormat {
  bool (*is)(FileBytes file);
  PictureHeader (*header)(FileBytes file, const std::string& path);
  Picture (*decode)(FileBytes file, const std::string& path, const Box* box);
};
constexpr PictureFormat kPictureFormats[] = {{IsJpeg, JpegHeader, DecodeJpeg},
                                             {IsPng, PngHeader, DecodePng}};

const PictureFormat& FormatOf(FileBytes file, const std::string& path) {
  for (const PictureFormat& format : kPictureFormats) {
    if (format.is(file)) return format;
  }
  throw DataError(path + ": " + WhatItLooksLike(file) + "; expected a JPEG or PNG picture");
}

}  // namespace

void CheckSize(const std::string& path, std::int64_t height, std::int64_t width) {
  const std::string claim =
      path + ": its header claims " + std::to_string(width) + " x " + std::to_string(height);
  if (height < 1 || width < 1) throw DataError(claim + " pixels: the picture is damaged");
  if (height > kMaxPixels / width) {
    throw DataError(claim + " pixels; expected at most " + std::to_string(kMaxPixels) +
                    ": make the picture smaller or leave it out");
  }
}

Picture RoomFor(const std::string& path, PictureSize size, int channels) {
  Picture picture{size.height, size.width, channels, {}};
  const std::size_t bytes = static_cast<std::size_t>(channels) *
                            static_cast<std::size_t>(size.height) *
                            static_cast<std::size_t>(size.width);
  try {
    picture.pixels.resize(bytes);
  } catch (const std::bad_alloc&) {
    throw NoMemory(path, "decode its " + HumanBytes(bytes) + " of pixels");
  }
  return picture;
}

Picture DecodePicture(FileBytes file, const std::string& path) {
  return WithMemory(path, kDecoding,
                    [&] { return FormatOf(file, path).decode(file, path, nullptr); });
}

Picture DecodePicture(FileBytes file, const std::string& path, const Box& box) {
  return WithMemory(path, kDecoding, [&] { return FormatOf(file, path).decode(file, path, &box); });
}

PictureSize SizeOfPicture(FileBytes file, const std::string& path) {
  return FormatOf(file, path).header(file, path).size;
}

std::string KindOfPicture(FileBytes file, const std::string& path) {
  return FormatOf(file, path).header(file, path).kind;
}

std::vector<std::uint8_t> ReadPictureFile(const std::string& path) {
  const std::string bytes = ReadDataFile(path, kMaxFileBytes);
  return WithMemory(path, "read it",
                    [&] { return std::vector<std::uint8_t>(bytes.begin(), bytes.end()); });
}

PictureSize SizeInPictureFile(const std::string& path) {
  std::vector<std::uint8_t> beginning(kBeginning);
  const int fd = OpenDataFile(path);
  beginning.resize(ReadAt(fd, 0, beginning.data(), beginning.size()));
  const int error = beginning.size() < kBeginning ? errno : 0;
  CloseFile(fd);
  if (error != 0) ThrowUnread<DataError>(path + ": cannot be read: " + std::strerror(error), error);
  try {
    return SizeOfPicture(beginning, path);
  } catch (const DataError&) {
    return SizeOfPicture(ReadPictureFile(path), path);  // the header may end further on
  }
}

Picture ReadPicture(const std::string& path) { return DecodePicture(ReadPictureFile(path), path); }

}  // namespace ada::data
