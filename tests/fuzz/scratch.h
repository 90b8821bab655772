// What the targets share: files in memory where the system has them, and the one rule of what a
// reader may do with bad input.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>

#include "error.h"
#include "temp_folder.h"

namespace ada::fuzz {

inline std::filesystem::path FolderInMemory() {
  std::error_code ignored;
  return std::filesystem::is_directory("/dev/shm", ignored)
             ? std::filesystem::path("/dev/shm")
             : std::filesystem::temp_directory_path();
}

// A folder of this process, in memory where there is /dev/shm, gone at its end.
class Scratch : public testing::TempFolder {
 public:
  Scratch() : TempFolder(FolderInMemory()) {}

  // Writes the file, whose folder is there, and returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string path = *this / name;
    std::FILE* file = std::fopen(path.c_str(), "wb");
    if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
        std::fclose(file) != 0) {
      throw std::runtime_error("cannot write " + path);
    }
    return path;
  }
};

// Runs `use`; an Error is an answer, unless it says that the program itself is wrong.
template <class Use>
void Refusable(const Use& use) {
  try {
    use();
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
  }
}

// Ends the process where `holds` is false.
inline void Demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

// Takes the first byte off `input` (0 where there is none): a choice that the fuzzer makes.
inline unsigned TakeByte(std::string_view* input) {
  if (input->empty()) return 0;
  const auto byte = static_cast<unsigned char>(input->front());
  input->remove_prefix(1);
  return byte;
}

}  // namespace ada::fuzz
