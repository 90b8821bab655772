// PNG files whose checksums are right whatever their chunks contain, so that the code after the
// check of the checksums is reached too.
#pragma once
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fuzz/scratch.h"

namespace ada::fuzz {

inline constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n";

inline std::string BigEndian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 255);
  return bytes;
}

inline std::string SumOf(std::string_view bytes) {
  return BigEndian(
      crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size())));
}

// The file with the sum that belongs to each of its chunks.
inline std::string WithRightSums(std::string_view file) {
  std::string png(file);
  constexpr std::size_t kLength = 4, kKind = 4, kSum = 4;
  for (std::size_t at = kPngSignature.size(); at + kLength + kKind + kSum <= png.size();) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < kLength; ++i)
      length = length << 8 | static_cast<unsigned char>(png[at + i]);
    if (length > png.size() - at - kLength - kKind - kSum) break;
    const std::string_view summed(png.data() + at + kLength, kKind + length);
    png.replace(at + kLength + kKind + length, kSum, SumOf(summed));
    at += kLength + kKind + length + kSum;
  }
  return png;
}

// A file of the pieces that the input gives, one after the other: width, height, depth, kind and
// interlacing (a byte each), the palette's length and its bytes, the rows with their filters.
inline std::string MadePng(std::string_view input) {
  std::string png(kPngSignature);
  const auto add = [&png](const std::string& kind, const std::string& content) {
    png += BigEndian(content.size()) + kind + content + SumOf(kind + content);
  };
  std::string header = BigEndian(TakeByte(&input));
  header += BigEndian(TakeByte(&input));
  for (const bool is_chosen : {true, true, false, false, true})
    header += static_cast<char>(is_chosen ? TakeByte(&input) : 0);
  add("IHDR", header);
  std::size_t palette = TakeByte(&input);
  palette = std::min(palette, input.size());
  if (palette > 0) add("PLTE", std::string(input.substr(0, palette)));
  input.remove_prefix(palette);
  uLongf length = compressBound(static_cast<uLong>(input.size()));
  std::string rows(length, '\0');
  if (compress2(reinterpret_cast<Bytef*>(rows.data()), &length,
                reinterpret_cast<const Bytef*>(input.data()), static_cast<uLong>(input.size()),
                Z_BEST_SPEED) != Z_OK)
    throw std::runtime_error("zlib cannot pack the rows");
  rows.resize(length);
  add("IDAT", rows);
  add("IEND", "");
  return png;
}

// The first byte chooses: the file as it stands, with right sums, or made of pieces.
inline std::string ChosenPng(std::string_view input) {
  switch (TakeByte(&input) % 3) {
    case 0:
      return std::string(input);
    case 1:
      return WithRightSums(input);
    default:
      return MadePng(input);
  }
}

}  // namespace ada::fuzz
