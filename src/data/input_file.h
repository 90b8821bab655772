// A data file that is read once from front to back, plain or gzip, and names itself and the byte in
// every error. Not for files that are read as a whole (io/file.h).
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>

namespace ada::data {

// Serves readers whose files have a known size and layout (CIFAR, IDX): they check the size before
// they take memory, and read on from there. One thread may use it at a time.
class InputFile {
 public:
  // Unpacks where the name ends in .gz. `advice` (what to do) ends every message. Throws DataError
  // where the file is missing, no regular file or may not be read.
  InputFile(std::string path, std::string advice);
  ~InputFile();

  // Exactly `to.size()` bytes; DataError with the offset where the file ends before or is damaged.
  // `expected` says what should have been there, for that message. Reading goes on where the last
  // call ended.
  void Read(std::span<std::uint8_t> to, const std::string& expected);

  // Throws unless the (unpacked) file has exactly `bytes` bytes, without reading it where its size
  // or its gzip trailer says so; else by unpacking it once. The position stays as it was.
  void ExpectSize(std::uint64_t bytes, const std::string& expected);

  // Reads on to the end and checks gzip's checksum; DataError where there is more data.
  void ExpectEnd(const std::string& expected);

  // Throws DataError: "PATH: byte OFFSET: PROBLEM; expected EXPECTED; ADVICE". An offset into a .gz
  // file's content says "of the unpacked data"; damage to the packing itself is at a byte of the
  // file.
  [[noreturn]] void Fail(std::uint64_t offset, const std::string& problem,
                         const std::string& expected) const;

 private:
  struct Stream;
  // The system refused, with errno's `error`: `reason` in words.
  [[noreturn]] void FailToRead(const std::string& doing, int error,
                               const std::string& reason) const;
  std::size_t ReadPacked(Stream& stream, std::span<std::uint8_t> to) const;
  std::size_t ReadSome(Stream& stream, std::span<std::uint8_t> to) const;
  // Stops unpacking after `most`.
  std::uint64_t UnpackedSize(std::uint64_t most) const;
  bool TrailerAgrees(std::uint64_t bytes) const;
  std::unique_ptr<Stream> Open() const;

  std::string path_, advice_;
  bool packed_ = false;
  std::uint64_t stored_bytes_ = 0;
  std::unique_ptr<Stream> stream_;
};

}  // namespace ada::data
