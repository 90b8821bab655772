#include "data/tokens/token_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "core/data_files.h"
#include "core/error.h"
#include "core/run_in_parallel.h"
#include "core/shown_text.h"
#include "core/text.h"

namespace ada::data {
namespace {

namespace fs = std::filesystem;

// llm.c's header, int32: magic number, version, count of tokens. Version 1 (dev/data of GPT-2) has
// uint16 tokens, version 7 (Llama 3) uint32.
constexpr std::size_t kHeaderBytes = 256 * sizeof(std::int32_t);
struct HeaderKind {
  std::int32_t magic, version;
  TokenType type;
};
constexpr HeaderKind kHeaders[] = {{20240520, 1, TokenType::kUint16},
                                   {20240801, 7, TokenType::kUint32}};
constexpr std::int64_t kLookedAt = 1 << 16;      // tokens, to tell uint32 from uint16
constexpr std::int64_t kTokensOfTask = 1 << 22;  // that one thread looks at

const char* TypeName(TokenType type) { return type == TokenType::kUint32 ? "uint32" : "uint16"; }

std::size_t WidthOf(TokenType type) {
  return type == TokenType::kByte ? 1 : type == TokenType::kUint32 ? 4 : 2;
}

// An element of a file, which need not be aligned.
template <class T>
T At(const std::byte* begin, std::int64_t index) {
  T value;
  std::memcpy(&value, begin + static_cast<std::size_t>(index) * sizeof(T), sizeof value);
  return value;
}

bool IsPattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

// Files of a folder whose names match, without hidden ones.
std::vector<std::string> FilesOfFolder(const std::string& folder, const std::string& pattern) {
  std::vector<std::string> files;
  for (const std::string& name : ListDataFolder(folder)) {
    const std::string path = (fs::path(folder) / name).string();
    if (name.starts_with('.') || !GlobMatch(pattern, name) || IsDataFolder(path)) continue;
    files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::string> FilesOf(const std::string& path, const std::string& ending) {
  const fs::path parts(path);
  const std::string name = parts.filename().string();
  if (IsDataFolder(path)) {
    std::vector<std::string> files = FilesOfFolder(path, "*" + ending);
    if (files.empty())
      throw DataError(path + ": no file " + (ending.empty() ? "" : "*" + ending + " ") +
                      "in this folder");
    return files;
  }
  if (!IsPattern(name) || IsThere(path)) return {path};
  const std::string folder = parts.has_parent_path() ? parts.parent_path().string() : ".";
  std::vector<std::string> files = FilesOfFolder(folder, name);
  if (files.empty()) throw DataError(path + ": no file in " + folder + " has such a name");
  return files;
}

}  // namespace

TokenFile::TokenFile(const std::string& path, TokenType type) : file_(path), type_(type) {
  if (type != TokenType::kByte) ReadHeader();
  if (type_ == TokenType::kAuto) {
    type_ = TokenType::kUint16;
    RefuseWide();
  }
  const std::size_t bytes = file_.bytes().size() - header_bytes_;
  if (bytes % WidthOf(type_) != 0)
    throw DataError(path + ": has " + std::to_string(bytes) + " bytes of tokens; expected a " +
                    "multiple of " + std::to_string(WidthOf(type_)) + ", tokens being " +
                    TypeName(type_) + " (data.element)");
  const auto found = static_cast<std::int64_t>(bytes / WidthOf(type_));
  if (header_bytes_ > 0 && count_ != found)
    throw DataError(path + ": byte 8: the header says " + std::to_string(count_) +
                    " tokens; the file has " + std::to_string(found) + " of " + TypeName(type_));
  count_ = found;
}

void TokenFile::ReadHeader() {
  if (file_.bytes().size() < sizeof(std::int32_t)) return;
  const auto number = [this](std::int64_t i) { return At<std::int32_t>(file_.bytes().data(), i); };
  for (const HeaderKind& kind : kHeaders) {
    if (number(0) != kind.magic) continue;
    if (file_.bytes().size() < kHeaderBytes)
      throw DataError(path() + ": ends within the header of llm.c; expected 1024 bytes");
    if (number(1) != kind.version)
      throw DataError(path() + ": byte 4: version " + std::to_string(number(1)) +
                      " of llm.c's format; expected " + std::to_string(kind.version));
    if (type_ != TokenType::kAuto && type_ != kind.type)
      throw DataError(path() + ": the header says " + TypeName(kind.type) +
                      " tokens, and data.element is " + TypeName(type_));
    type_ = kind.type;
    header_bytes_ = kHeaderBytes;
    count_ = number(2);
  }
}

// Numbers of 32 bits below 2^16, read as 16 bits, are a zero at every second place.
void TokenFile::RefuseWide() const {
  constexpr std::int64_t kEnough = 8;
  const auto halves = static_cast<std::int64_t>(file_.bytes().size() / sizeof(std::uint16_t));
  const std::int64_t pairs = std::min(halves, kLookedAt) / 2;
  if (pairs < kEnough) return;
  bool any = false;
  for (std::int64_t i = 0; i < pairs; ++i) {
    if (At<std::uint16_t>(file_.bytes().data(), 2 * i + 1) != 0) return;
    any = any || At<std::uint16_t>(file_.bytes().data(), 2 * i) != 0;
  }
  if (any)
    throw DataError(path() + ": as uint16 every second token would be 0: it looks like uint32; " +
                    "say which it is: data.element: uint32 or uint16");
}

template <class Use>
void TokenFile::WithTokens(const Use& use) const {
  const std::byte* begin = file_.bytes().data() + header_bytes_;
  if (type_ == TokenType::kByte)
    use([begin](std::int64_t i) { return At<std::uint8_t>(begin, i); });
  else if (type_ == TokenType::kUint16)
    use([begin](std::int64_t i) { return At<std::uint16_t>(begin, i); });
  else
    use([begin](std::int64_t i) { return At<std::uint32_t>(begin, i); });
}

void TokenFile::Read(std::int64_t first, std::int64_t count, int vocabulary,
                     std::int32_t* out) const {
  ADA_CHECK(first >= 0 && count >= 0 && first + count <= count_);
  WithTokens([&](auto token) {
    // One comparison after the loop takes the place of one in it; which token it is, is looked for
    // only then.
    std::uint32_t largest = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint32_t value = token(first + i);
      largest = std::max(largest, value);
      out[i] = static_cast<std::int32_t>(value);
    }
    if (largest < static_cast<std::uint32_t>(vocabulary)) return;
    RefuseFirst(token, first, first + count, vocabulary);
  });
}

std::int64_t TokenFile::Largest(std::int64_t limit) const {
  const std::int64_t tasks = (count_ + kTokensOfTask - 1) / kTokensOfTask;
  std::vector<std::uint32_t> largest(static_cast<std::size_t>(tasks));
  WithTokens([&](auto token) {
    RunRangesInParallel(count_, kTokensOfTask, [&](std::int64_t begin, std::int64_t end) {
      std::uint32_t most = 0;
      for (std::int64_t i = begin; i < end; ++i) most = std::max<std::uint32_t>(most, token(i));
      largest[static_cast<std::size_t>(begin / kTokensOfTask)] = most;
    });
    for (std::size_t task = 0; task < largest.size(); ++task) {
      if (largest[task] < limit) continue;
      RefuseFirst(token, static_cast<std::int64_t>(task) * kTokensOfTask, count_, limit);
    }
  });
  return largest.empty() ? 0 : *std::max_element(largest.begin(), largest.end());
}

// The file may have been written anew since the token was seen.
template <class Token>
void TokenFile::RefuseFirst(const Token& token, std::int64_t begin, std::int64_t end,
                            std::int64_t limit) const {
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t value = token(i);
    if (value >= limit) Refuse(i, value, limit);
  }
  throw DataError(path() + ": changed while it was read");
}

void TokenFile::Refuse(std::int64_t token, std::int64_t value, std::int64_t limit) const {
  const std::size_t offset = header_bytes_ + static_cast<std::size_t>(token) * WidthOf(type_);
  throw DataError(path() + ": token " + std::to_string(token) + " (byte " + std::to_string(offset) +
                  ") is " + std::to_string(value) + "; expected 0 to " + std::to_string(limit - 1) +
                  ", the vocabulary");
}

std::vector<std::string> FindTokenFiles(const std::vector<std::string>& paths,
                                        const std::string& ending) {
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (const std::string& path : paths)
    for (std::string& file : FilesOf(path, ending)) {
      if (!seen.insert(fs::path(file).lexically_normal().string()).second)
        throw DataError(file + ": stands twice in data.path");
      files.push_back(std::move(file));
    }
  return files;
}

}  // namespace ada::data
