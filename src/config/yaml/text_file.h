// A configuration file as text: size, kind and encoding are checked before anything parses it.
#pragma once
#include <string>
#include <string_view>

namespace ada::config {

// The text of `path`, at most 1 MB. Throws ConfigError: missing, unreadable, a directory, too large
// (without reading it whole).
std::string ReadTextFile(const std::string& path);

// Why `text` is no text that a configuration may hold (NUL, other control characters, invalid
// UTF-8), with the byte's place; empty when it is fine.
std::string TextProblem(std::string_view text);

}  // namespace ada::config
