// Reading with a limit, and a validator.
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "config/yaml/document.h"
#include "core/data_files.h"
#include "core/shown_text.h"
#include "core/system_call.h"

namespace ada::config {
namespace {

constexpr std::size_t kLimit = 1'000'000;

}  // namespace

std::string ReadTextFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw ConfigError(path + ": is a directory; expected a YAML file");
  }
  std::string text, problem;
  // Pipes of the shell (`<(command)`) are allowed, whose size is not known: the read is bounded as
  // well.
  const int fd = OpenToRead(path, Pipes::kOffered, &problem);
  const int refused = errno;
  if (fd < 0) ThrowUnread<ConfigError>(path + ": cannot be opened: " + problem, refused);
  const auto size = static_cast<std::size_t>(SizeOfFile(fd));
  int error = 0;
  if (size <= kLimit && !ReadUpTo(fd, kLimit + 1, &text)) error = errno;
  CloseFile(fd);
  if (error != 0)
    ThrowUnread<ConfigError>(path + ": cannot be read: " + std::strerror(error), error);
  if (size <= kLimit && text.size() <= kLimit) return text;
  throw ConfigError(path + ": is larger than 1 MB" +
                    (size > kLimit ? " (" + std::to_string(size) + " bytes)" : "") +
                    "; expected a configuration of a few kilobytes");
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
