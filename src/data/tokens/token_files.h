// Files that hold nothing but tokens, mapped into memory: bytes of a text, or whole numbers as
// nanoGPT (raw), llm.c (after a header of 256 int32) and NumPy (.npy) write them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/tensors/mapped_file.h"
#include "data/tokens/number_width.h"
#include "io/tensor_files/safetensors.h"

namespace ada::data {

// A file is checked when it is opened, except for its tokens, which may be very many. Several
// threads may read from it.
class TokenFile {
 public:
  // `type`: kByte, or the type that the user gives; kAuto: the one in the header of llm.c or NumPy,
  // and uint16 for a file without one. DataError: a size that is no whole number of tokens, a
  // header of another version, count, shape or type; of kAuto numbers that look wider than uint16,
  // and files of another kind.
  TokenFile(const std::string& path, TokenType type);

  const std::string& path() const { return file_.path(); }
  std::int64_t count() const { return count_; }
  std::span<const std::byte> bytes() const { return file_.bytes(); }
  // "uint16", "uint16 behind the header of llm.c"; of a text "bytes".
  std::string type_text() const;
  // What the user's own choice of a type, which is followed, does not go with; "": nothing.
  std::string warning() const;
  // Tokens first .. first + count. DataError where one is not below `vocabulary`.
  void Read(std::int64_t first, std::int64_t count, int vocabulary, std::int32_t* out) const;
  // Looks at all tokens. DataError where one is not below `limit`.
  std::int64_t Largest(std::int64_t limit) const;
  void CheckUnchanged() const { file_.CheckUnchanged(); }

 private:
  template <class Use>
  void WithTokens(const Use& use) const;
  void ReadHeader(TokenType type);
  void ReadNpy(TokenType type);
  std::string WidthAdvice(std::uint64_t value) const;
  [[noreturn]] void Refuse(std::int64_t token, const std::string& value, std::uint64_t bits,
                           std::int64_t limit) const;
  template <class Token>
  [[noreturn]] void RefuseFirst(const Token& token, std::int64_t begin, std::int64_t end,
                                std::int64_t limit) const;

  MappedFile file_;
  DType type_ = DType::kU8;
  const char* header_ = nullptr;  // whose it is; null: there is none
  std::size_t header_bytes_ = 0;
  std::int64_t count_ = 0;
  NumberWidth width_;  // of a file without a header
};

using TokenFiles = std::vector<std::shared_ptr<const TokenFile>>;

}  // namespace ada::data
