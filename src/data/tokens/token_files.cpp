// Finds the type and the first token of a mapped file from its header or its settings, and checks
// tokens in parallel.
#include "data/tokens/token_files.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "data/tensors/arrays.h"
#include "data/tensors/tensor_file.h"
#include "error.h"
#include "io/run_in_parallel.h"
#include "io/text.h"

namespace ada::data {
namespace {

// llm.c's header, int32: magic number, version, count of tokens. Version 1 (dev/data of GPT-2) has
// uint16 tokens, version 7 (Llama 3) uint32.
constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);
struct HeaderKind {
  std::int32_t magic, version;
  DType type;
};
constexpr HeaderKind kHeaders[] = {{20240520, 1, DType::kU16}, {20240801, 7, DType::kU32}};
constexpr char kLlmc[] = "the header of llm.c", kNumpy[] = "the header of NumPy";
constexpr std::int64_t kTokensOfTask = 1 << 22;  // that one thread looks at

// The types of whole numbers, by their names in NumPy.
constexpr std::pair<DType, const char*> kTypes[] = {
    {DType::kU8, "uint8"},   {DType::kI8, "int8"},    {DType::kU16, "uint16"},
    {DType::kI16, "int16"},  {DType::kU32, "uint32"}, {DType::kI32, "int32"},
    {DType::kU64, "uint64"}, {DType::kI64, "int64"}};

std::string NameOfType(DType type) {
  for (const auto& [dtype, name] : kTypes)
    if (dtype == type) return name;
  return std::string(ToString(type));
}

DType ElementOf(TokenType type) {
  return type == TokenType::kByte     ? DType::kU8
         : type == TokenType::kUint32 ? DType::kU32
                                      : DType::kU16;
}

// An element of a file, which need not be aligned.
template <class T>
T At(const std::byte* begin, std::int64_t index) {
  T value;
  std::memcpy(&value, begin + static_cast<std::size_t>(index) * sizeof(T), sizeof value);
  return value;
}

// The user may say what a header says too.
void RequireType(const std::string& path, TokenType given, DType of_header) {
  if (given == TokenType::kAuto || ElementOf(given) == of_header) return;
  throw DataError(path + ": the header says " + NameOfType(of_header) +
                  " tokens, and data.element is " + NameOfType(ElementOf(given)));
}

// A token's bits as an unsigned number: one below 0 is larger than every vocabulary.
template <class T>
using BitsOf =
    std::conditional_t<(sizeof(T) < sizeof(std::uint64_t)), std::uint32_t, std::uint64_t>;

}  // namespace

TokenFile::TokenFile(const std::string& path, TokenType type)
    : file_(path), type_(ElementOf(type)) {
  if (type != TokenType::kByte) ReadHeader(type);
  const bool bare = type != TokenType::kByte && header_ == nullptr;
  if (bare) width_ = WidthOfNumbers(bytes());
  if (bare && type == TokenType::kAuto) {
    if (const std::string kind = ForeignKind(bytes()); !kind.empty())
      throw DataError(path + ": " + kind + ", not numbers alone; expected tokens of uint16 or " +
                      "uint32, or .npy");
    if (LooksLikeText(bytes()))
      throw DataError(path + ": is a text, not numbers; data.dataset: text learns its bytes");
    if (width_.bytes > 2)
      throw DataError(path + ": " + WidthText(width_, 2, /*user_says=*/false) + "; " +
                      (width_.bytes == 4
                           ? "say which it is: data.element: uint32 or uint16"
                           : "write it as uint16 or uint32, or as .npy, whose header says it"));
  }
  const std::size_t size = bytes().size() - header_bytes_, width = BytesOf(type_);
  if (size % width != 0)
    throw DataError(path + ": has " + std::to_string(size) + " bytes of tokens; expected a " +
                    "multiple of " + std::to_string(width) + ", tokens being " + NameOfType(type_) +
                    (bare ? " (data.element)" : ""));
  const auto found = static_cast<std::int64_t>(size / width);
  if (header_ != nullptr && count_ != found)
    throw DataError(path + ": " + (header_ == kLlmc ? "byte 8: " : "") + "the header says " +
                    std::to_string(count_) + " tokens; the file has " + std::to_string(found) +
                    " of " + NameOfType(type_));
  count_ = found;
}

void TokenFile::ReadHeader(TokenType type) {
  if (BeginsAsNpy(bytes())) return ReadNpy(type);
  if (bytes().size() < sizeof(std::int32_t)) return;
  const auto number = [this](std::int64_t i) { return At<std::int32_t>(bytes().data(), i); };
  for (const HeaderKind& kind : kHeaders) {
    if (number(0) != kind.magic) continue;
    if (bytes().size() < kHeaderBytes)
      throw DataError(path() + ": ends within the header of llm.c; expected 1024 bytes");
    if (number(1) != kind.version)
      throw DataError(path() + ": byte 4: version " + std::to_string(number(1)) +
                      " of llm.c's format; expected " + std::to_string(kind.version));
    RequireType(path(), type, kind.type);
    header_ = kLlmc, type_ = kind.type, header_bytes_ = kHeaderBytes;
    count_ = number(2);
  }
}

void TokenFile::ReadNpy(TokenType type) {
  const NpyHeader header = ParseNpyHeader(bytes(), path());
  if (!IsInteger(header.dtype))
    throw DataError(path() + ": elements are " + std::string(ToString(header.dtype)) +
                    "; expected whole numbers (uint16, int64, ...)");
  if (header.shape.size() != 1)
    throw DataError(path() + ": has the shape " + DimsText(header.shape) +
                    "; expected [tokens], all one after the other (rows that are sequences: "
                    "data.dataset: tensors)");
  RequireType(path(), type, header.dtype);
  header_ = kNumpy, type_ = header.dtype, header_bytes_ = header.data_offset;
  count_ = header.shape.front();
}

std::string TokenFile::type_text() const {
  return NameOfType(type_) + (header_ == nullptr ? "" : std::string(" after ") + header_);
}

std::string TokenFile::warning() const {
  const auto read_as = static_cast<int>(BytesOf(type_));
  const std::string end = ZerosAtEnd(bytes().subspan(header_bytes_), BytesOf(type_));
  const std::string cut = end.empty() ? "" : path() + ": " + end;
  if (header_ != nullptr) return cut;
  const std::string kind = LooksLikeText(bytes()) ? "is a text" : ForeignKind(bytes());
  if (!kind.empty())
    return path() + ": " + kind + ", and its bytes are read as " + NameOfType(type_) +
           " (data.element)";
  const std::string order = read_as == 2 && width_.bytes == 2 ? OrderFault(bytes()) : "";
  if (!order.empty()) return path() + ": read as uint16 (data.element): " + order;
  if (width_.bytes <= read_as) return cut;
  return path() + ": " + WidthText(width_, read_as, /*user_says=*/true) +
         (width_.bytes == 8 ? "; write it as uint16 or uint32, or as .npy" : "");
}

template <class Use>
void TokenFile::WithTokens(const Use& use) const {
  const std::byte* begin = bytes().data() + header_bytes_;
  const auto with = [&](auto type) {
    use([begin](std::int64_t i) { return At<decltype(type)>(begin, i); });
  };
  switch (type_) {
    case DType::kU8:
      return with(std::uint8_t{});
    case DType::kI8:
      return with(std::int8_t{});
    case DType::kU16:
      return with(std::uint16_t{});
    case DType::kI16:
      return with(std::int16_t{});
    case DType::kU32:
      return with(std::uint32_t{});
    case DType::kI32:
      return with(std::int32_t{});
    case DType::kU64:
      return with(std::uint64_t{});
    default:
      return with(std::int64_t{});
  }
}

void TokenFile::Read(std::int64_t first, std::int64_t count, int vocabulary,
                     std::int32_t* out) const {
  ADA_CHECK(first >= 0 && count >= 0 && first + count <= count_);
  WithTokens([&](auto token) {
    // One comparison after the loop takes the place of one in it; which token it is, is looked for
    // only then.
    using Bits = BitsOf<decltype(token(0))>;
    Bits largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto value = static_cast<Bits>(token(first + i));
      largest = std::max(largest, value);
      out[i] = static_cast<std::int32_t>(value);
    }
    if (largest < static_cast<Bits>(vocabulary)) return;
    RefuseFirst(token, first, first + count, vocabulary);
  });
}

std::int64_t TokenFile::Largest(std::int64_t limit) const {
  const std::int64_t tasks = (count_ + kTokensOfTask - 1) / kTokensOfTask;
  std::vector<std::uint64_t> largest(static_cast<std::size_t>(tasks));
  WithTokens([&](auto token) {
    using Bits = BitsOf<decltype(token(0))>;
    RunRangesInParallel(count_, kTokensOfTask, [&](std::int64_t begin, std::int64_t end) {
      Bits most = 0;
      for (std::int64_t i = begin; i < end; ++i) most = std::max(most, static_cast<Bits>(token(i)));
      largest[static_cast<std::size_t>(begin / kTokensOfTask)] = most;
    });
    for (std::size_t task = 0; task < largest.size(); ++task) {
      if (largest[task] < static_cast<std::uint64_t>(limit)) continue;
      RefuseFirst(token, static_cast<std::int64_t>(task) * kTokensOfTask, count_, limit);
    }
  });
  return largest.empty()
             ? 0
             : static_cast<std::int64_t>(*std::max_element(largest.begin(), largest.end()));
}

// The file may have been written anew since the token was seen.
template <class Token>
void TokenFile::RefuseFirst(const Token& token, std::int64_t begin, std::int64_t end,
                            std::int64_t limit) const {
  for (std::int64_t i = begin; i < end; ++i) {
    const auto value = token(i);
    if (std::cmp_less(value, 0) || std::cmp_greater_equal(value, limit))
      Refuse(i, std::to_string(value), static_cast<std::uint64_t>(value), limit);
  }
  throw DataError(path() + ": changed while it was read");
}

void TokenFile::Refuse(std::int64_t token, const std::string& value, std::uint64_t bits,
                       std::int64_t limit) const {
  const std::size_t offset = header_bytes_ + static_cast<std::size_t>(token) * BytesOf(type_);
  throw DataError(path() + ": token " + std::to_string(token) + " (byte " + std::to_string(offset) +
                  ") is " + value + "; expected 0 to " + std::to_string(limit - 1) +
                  ", the vocabulary" + WidthAdvice(bits));
}

// What a token that is too large says of the width: numbers of another one look so.
std::string TokenFile::WidthAdvice(std::uint64_t value) const {
  if (header_ != nullptr) return "";
  const auto read_as = static_cast<int>(BytesOf(type_));
  if (width_.bytes > read_as)
    return "; the file looks like " + std::string(width_.bytes == 4 ? "uint32" : "int64") +
           " (data.element)";
  constexpr std::uint64_t kNone = std::uint64_t{1} << 20;  // no vocabulary is so large
  if (type_ != DType::kU32 || value < kNone) return "";
  if (width_.bytes == 2) return "; is it uint16 (data.element)?";
  return "; as int32 it is " + std::to_string(static_cast<std::int32_t>(value));
}

}  // namespace ada::data
