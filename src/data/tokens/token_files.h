// Files that hold nothing but tokens, mapped into memory: bytes of a text, or whole numbers as
// nanoGPT (raw) and llm.c (after a header of 256 int32) write them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/tensors/mapped_file.h"

namespace ada::data {

// A file is checked when it is opened, except for its tokens, which may be very many. Several
// threads may read from it.
class TokenFile {
 public:
  // `type`: kByte, or the type that the user gives; kAuto: the one in llm.c's header, and uint16
  // for a file without one. DataError: a size that is no whole number of tokens, a header of
  // another version or count, or uint32 that the user did not give.
  TokenFile(const std::string& path, TokenType type);

  const std::string& path() const { return file_.path(); }
  std::int64_t count() const { return count_; }
  bool has_header() const { return header_bytes_ > 0; }
  TokenType type() const { return type_; }  // never kAuto
  // Tokens first .. first + count. DataError where one is not below `vocabulary`.
  void Read(std::int64_t first, std::int64_t count, int vocabulary, std::int32_t* out) const;
  // Looks at all tokens. DataError where one is not below `limit`.
  std::int64_t Largest(std::int64_t limit) const;
  void CheckUnchanged() const { file_.CheckUnchanged(); }

 private:
  template <class Use>
  void WithTokens(const Use& use) const;
  void ReadHeader();
  void RefuseWide() const;
  [[noreturn]] void Refuse(std::int64_t token, std::int64_t value, std::int64_t limit) const;
  template <class Token>
  [[noreturn]] void RefuseFirst(const Token& token, std::int64_t begin, std::int64_t end,
                                std::int64_t limit) const;

  MappedFile file_;
  TokenType type_;
  std::size_t header_bytes_ = 0;
  std::int64_t count_ = 0;
};

using TokenFiles = std::vector<std::shared_ptr<const TokenFile>>;

// The files that paths name, those of each path in byte order: a file, a folder (its files but for
// hidden ones; with `ending` those alone), or a pattern of names in a folder (texts/*.txt).
// DataError: nothing there, a file twice.
std::vector<std::string> FindTokenFiles(const std::vector<std::string>& paths,
                                        const std::string& ending);

}  // namespace ada::data
