// 128-bit XXH3 of bytes as 32 hexadecimal digits (what `xxhsum -H2` prints): detects damage, but
// not deliberate changes.
#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace ada {

// Hashes bytes that come in pieces: the result is that of all of them together, however they are
// cut.
class Hasher {
 public:
  Hasher();
  ~Hasher();
  void Update(std::span<const std::byte> bytes);
  std::string Hex() const;  // of all bytes so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string HashBytes(std::span<const std::byte> bytes);

// Reads in pieces; DataError with the system's reason where the file cannot be read.
std::string HashFile(const std::string& path);

}  // namespace ada
