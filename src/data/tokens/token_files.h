// Files of a data set of texts or tokens, which are mapped into memory: bytes of a text, or whole
// numbers as nanoGPT (raw), llm.c (after a header of 256 int32) and NumPy (.npy) write them; which
// files those are, and what bytes say of a file that is another one.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/tensors/tensor_file.h"
#include "io/tensor_files/safetensors.h"

namespace ada::data {

struct FileList {
  std::vector<std::string> files;  // those of each path in byte order
  // One line for each path that has folders in it, or matches some, of which nothing is read:
  // "corpus: 2 folders in it are not read: AA, AB (data.path: corpus/*/* takes their files)".
  std::vector<std::string> not_read;
};

// The files that paths name: a file, a folder (its files but for hidden ones; with `ending` those
// alone), or a pattern whose parts may be patterns of names (texts/*/*.txt). DataError: nothing
// there, a file twice.
FileList ListTokenFiles(const std::vector<std::string>& paths, const std::string& ending);

// Files that are given as a text, or as numbers alone, and whose bytes say that they are something
// else: packed, of another program, in another encoding, or with a hole. "is packed by gzip", "is a
// picture (PNG)"; "" for bytes of no known kind. `begin` are the first of a file, some 300 are
// enough.
std::string ForeignKind(std::span<const std::byte> begin);

// Whether bytes that should be numbers are letters: all of the first some thousand can be printed.
bool LooksLikeText(std::span<const std::byte> numbers);

// What is wrong with `text` as a text; "" for nothing: what ForeignKind knows, the mark of UTF-16
// or UTF-32, bytes that are 0, or many of no character of UTF-8. At most about `most` bytes of it
// are looked at, spread over it.
std::string FaultOfText(std::span<const std::byte> text, std::size_t most);

// "the last 3,000 of 6,000 tokens are 0: is it whole?" of numbers of `width` bytes; "" where fewer
// than 512 are. A file that was cut off and filled up ends so.
std::string ZerosAtEnd(std::span<const std::byte> numbers, std::size_t width);

// What a file of numbers without a header says of their width, by where its zeros stand. What the
// halves of 16 bits are as numbers of 32 and 64 bits, of tokens, leave them.
struct NumberWidth {
  int bytes = 2;           // 2: nothing speaks against it; 4 or 8: it looks like these
  std::uint32_t high = 0;  // of 4 or 8: the largest upper half of the lower 32 bits
};

// Looks at some hundred thousand numbers, spread over `numbers`.
NumberWidth WidthOfNumbers(std::span<const std::byte> numbers);

// "as uint16 every second token would be 0 to 1: it looks like uint32", of numbers that look wider
// than the `read_as` bytes; "as uint16 (data.element) every second token is ..." where the user
// says so.
std::string WidthText(const NumberWidth& width, int read_as, bool user_says);

// What speaks against numbers of 16 bits, of which WidthOfNumbers found no other width: another
// order of bytes, or values that differ between even and odd places (floats, wider numbers in
// another order); "" for nothing.
std::string OrderFault(std::span<const std::byte> numbers);

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
  // "uint16", "uint16 after the header of llm.c"; of a text "bytes".
  std::string type_text() const;
  // What the type that is followed does not go with, or a tail of zeros; "": nothing.
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
