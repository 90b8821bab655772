// YAML to Config and back. All problems of a file are collected and thrown together as one
// ConfigError, one line each: file:line:column: what, what was expected, the nearest known key.
#pragma once
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::config {

// A --set override, in the order given: "scaling.scale" and the YAML text of its value.
using Overrides = std::vector<std::pair<std::string, std::string>>;

struct Loaded {
  Config config;
  std::vector<std::string>
      notes;  // keys of the file that an override made meaningless, one line each
};

// Reads and checks `path`; overrides go through the same checks (their place is `--set KEY`).
// Throws ConfigError (exit 2); a missing or unreadable file is one as well.
Loaded Load(const std::string& path, const Overrides& overrides);
// The same from text; `name` stands for the file in messages.
Loaded LoadText(const std::string& text, const std::string& name, const Overrides& overrides);

// The complete resolved configuration, every default filled in, as YAML that Load reads back to an
// equal Config.
std::string ToYaml(const Config& config);

// `text` as a YAML value that reads back to exactly this text, for an override that comes from a
// command-line option (--name, --output).
std::string YamlText(std::string_view text);

}  // namespace ada::config
