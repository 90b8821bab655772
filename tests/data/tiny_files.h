// Small data files made at run time, and messages of errors with the folder's name taken out.
#pragma once
#include <doctest/doctest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "error.h"
#include "temp_folder.h"

namespace ada::data {

using Bytes = std::vector<std::uint8_t>;

inline void WriteFile(const std::string& path, const Bytes& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream out(path, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()),
            static_cast<std::streamsize>(bytes.size()));
  REQUIRE(out.good());
}

// A file of `size` zero bytes that takes no room on the disk.
inline void WriteZeros(const std::string& path, std::uint64_t size) {
  WriteFile(path, {});
  std::filesystem::resize_file(path, size);
}

inline Bytes Gzip(const Bytes& bytes) {
  const testing::TempFolder folder;
  const std::string path = folder / "packed.gz";
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) ==
          static_cast<int>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

// An IDX file: magic number, sizes, content.
inline Bytes Idx(std::uint32_t magic, const std::vector<std::uint32_t>& sizes,
                 const Bytes& content) {
  Bytes bytes;
  const auto put = [&bytes](std::uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8) {
      bytes.push_back(static_cast<std::uint8_t>(value >> shift));
    }
  };
  put(magic);
  for (const std::uint32_t size : sizes) put(size);
  bytes.insert(bytes.end(), content.begin(), content.end());
  return bytes;
}

// The message of the E that `call` throws, with `folder` written as DIR; "" where it throws none.
template <class E = DataError, class Call>
std::string MessageOf(const std::string& folder, Call call) {
  try {
    call();
  } catch (const E& error) {
    std::string message = error.what();
    for (auto at = message.find(folder); at != std::string::npos; at = message.find(folder)) {
      message.replace(at, folder.size(), "DIR");
    }
    return message;
  }
  return "";
}

}  // namespace ada::data
