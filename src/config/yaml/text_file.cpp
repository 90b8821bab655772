// Reading with a limit, and a validator of UTF-8 (RFC 3629: no overlong forms, no surrogates).
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "config/yaml/document.h"
#include "core/error.h"
#include "core/system_call.h"

namespace ada::config {
namespace {

constexpr std::size_t kLimit = 1'000'000;

// Bytes of the valid UTF-8 character at `text[at]`; 0: not valid.
std::size_t CharacterLength(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const auto tail = [&](std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) {
      if ((byte(i) & 0xC0u) != 0x80u) return false;
    }
    return true;
  };
  if (first >= 0xC2 && first <= 0xDF && tail(1)) return 2;
  if (first >= 0xE0 && first <= 0xEF && tail(2)) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4 && tail(3)) {
    const bool outside = (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90);
    return outside ? 0 : 4;
  }
  return 0;
}

}  // namespace

std::string ReadTextFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(path + ": is a directory; expected a YAML file");
  }
  std::string text, problem;
  const int fd = OpenToRead(path, Pipes::kOffered, &problem);
  if (fd < 0) throw ConfigError(path + ": cannot be opened: " + problem);
  if (!ReadUpTo(fd, kLimit + 1, &text)) {
    problem = path + ": cannot be read: " + std::strerror(errno);
  }
  CloseFile(fd);
  if (!problem.empty()) throw ConfigError(problem);
  if (text.size() > kLimit) {
    throw ConfigError(path + ": is larger than 1 MB; expected a configuration of a few kilobytes");
  }
  return text;
}

std::string TextProblem(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool control =
        (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7f;
    const std::size_t length = control ? 0 : CharacterLength(text, i);
    if (length == 0) {
      return "is not a text file: byte " + std::to_string(i) + " is " +
             (control ? "a control character" : "not valid UTF-8") + "; expected YAML";
    }
    i += length;
  }
  return "";
}

}  // namespace ada::config
