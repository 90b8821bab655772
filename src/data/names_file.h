// Text files that hold a name in each line: lists of images, names of classes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ada::data {

struct NameInFile {
  std::string name;
  int line = 0;  // from 1
};

// What of a line is its name.
enum class NamePart : std::uint8_t { kWholeLine, kFirstWord };

// The names, in the file's order; empty lines have none, and a byte order mark before the first is
// passed over. DataError naming file and line: it cannot be read or is larger than `most_bytes`, a
// name has a control character (as text of 16 bits a character has), or is there twice.
std::vector<NameInFile> ReadNamesFile(const std::string& path, std::uint64_t most_bytes,
                                      NamePart part);

}  // namespace ada::data
