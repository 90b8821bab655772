// WebP by libwebp. A still picture is decoded whole, for color is upsampled from its neighbors:
// so a box has the same bytes as in the whole picture.
#include <webp/decode.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "data/file_fault.h"
#include "data/images/formats.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"

namespace ada::data {
namespace {

// The container is RIFF: "RIFF", a size, "WEBP", then chunks of a name, a size and data, padded to
// an even size (RFC 9649, section 2.3).
constexpr std::size_t kRiffHeader = 12, kChunkHeader = 8;
constexpr std::uint8_t kExifFlag = 0x08;  // of VP8X (RFC 9649, section 2.7.1)

std::string_view TextAt(FileBytes file, std::size_t at, std::size_t count) {
  if (at > file.size() || count > file.size() - at) return {};
  return {reinterpret_cast<const char*>(file.data()) + at, count};
}

// Little endian; the place is within the file.
std::uint64_t NumberAt(FileBytes file, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint64_t{file[at + i]} << 8 * i;
  return value;
}

[[noreturn]] void FailCutOff(const std::string& path) {
  throw FaultyFile(FaultKind::kCut, path + ": the WebP data is cut off; the picture is damaged");
}

// The orientation in the chunk EXIF, which stands after the pixels. DataError where the header
// claims one and the file ends before it.
int OrientationOfWebp(FileBytes file, const std::string& path) {
  const bool claims = TextAt(file, kRiffHeader, 4) == "VP8X" &&
                      file.size() > kRiffHeader + kChunkHeader &&
                      (file[kRiffHeader + kChunkHeader] & kExifFlag) != 0;
  if (!claims) return 1;
  const std::uint64_t end = NumberAt(file, 4) + 8;
  std::uint64_t at = kRiffHeader;
  while (at + kChunkHeader <= file.size()) {
    const std::uint64_t length = NumberAt(file, at + 4);
    const std::uint64_t data = at + kChunkHeader;
    if (TextAt(file, at, 4) == "EXIF" && length <= file.size() - data)
      return OrientationOfExif(file.subspan(data, length));
    at = data + length + length % 2;
  }
  // The chunk was not found. If the file is shorter than its header says, it may be in the missing
  // part, which the caller reads next.
  if (file.size() < end) FailCutOff(path);
  return 1;
}

WebPBitstreamFeatures FeaturesOf(FileBytes file, const std::string& path) {
  WebPBitstreamFeatures features{};
  const VP8StatusCode status = WebPGetFeatures(file.data(), file.size(), &features);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA) FailCutOff(path);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw NoMemory(path, kDecoding);
  if (status != VP8_STATUS_OK) throw DataError(path + ": the WebP data cannot be decoded");
  if (features.has_animation != 0)
    throw DataError(path + ": is an animated WebP; expected a still picture");
  CheckSize(path, features.height, features.width);
  return features;
}

bool IsLossless(const WebPBitstreamFeatures& features) { return features.format == 2; }

}  // namespace

bool IsWebp(FileBytes file) { return TextAt(file, 0, 4) == "RIFF" && TextAt(file, 8, 4) == "WEBP"; }

PictureHeader WebpHeader(FileBytes file, const std::string& path) {
  const WebPBitstreamFeatures features = FeaturesOf(file, path);
  PictureHeader header;
  header.size = {features.height, features.width};
  header.traits.alpha = features.has_alpha != 0;
  header.traits.orientation = OrientationOfWebp(file, path);
  header.kind = std::string("WebP, ") + (IsLossless(features) ? "lossless" : "lossy") +
                (header.traits.alpha ? ", alpha" : "");
  // The library holds lossless pixels as words of 32 bits, and rows of lossy ones.
  const std::uint64_t pixel_bytes = IsLossless(features) ? 3 + 4 : 3;
  header.decoding_bytes = pixel_bytes * static_cast<std::uint64_t>(features.height) *
                          static_cast<std::uint64_t>(features.width);
  return header;
}

Picture DecodeWebp(FileBytes file, const std::string& path, const Box* box) {
  const WebPBitstreamFeatures features = FeaturesOf(file, path);
  if (NumberAt(file, 4) + 8 > file.size()) FailCutOff(path);
  const PictureSize size{features.height, features.width};
  Picture whole = RoomFor(path, size);
  // The library writes into our memory, so that there is one copy of the pixels.
  WebPDecoderConfig config;
  ADA_CHECK(WebPInitDecoderConfig(&config) != 0);
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = whole.pixels.data();
  config.output.u.RGBA.stride = 3 * size.width;
  config.output.u.RGBA.size = whole.pixels.size();
  const VP8StatusCode status = WebPDecode(file.data(), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) throw NoMemory(path, kDecoding);
  if (status == VP8_STATUS_NOT_ENOUGH_DATA || status == VP8_STATUS_SUSPENDED) FailCutOff(path);
  if (status != VP8_STATUS_OK)
    throw DataError(path + ": the WebP data cannot be decoded; the picture is damaged");
  if (box == nullptr) return whole;
  Picture part = RoomFor(path, {box->height, box->width});
  const std::size_t row = std::size_t{3} * static_cast<std::size_t>(box->width);
  for (int y = 0; y < box->height; ++y) {
    const std::ptrdiff_t from = 3 * (std::ptrdiff_t{box->top + y} * size.width + box->left);
    std::copy_n(whole.pixels.data() + from, row,
                part.pixels.data() + static_cast<std::size_t>(y) * row);
  }
  return part;
}

}  // namespace ada::data
