// What is wrong with a text that the YAML parser refused, as its writer would say it.
// ParseYaml asks it after yaml-cpp threw; where nothing is found its caller says "not valid YAML
// here".
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace ada::config {

// A place in the text, in lines and bytes from 0.
struct TextFault {
  int line = 0, byte = 0;
  std::string message;
};

// Looks for the common slips around the place (line and byte, from 0) where the parser gave up: a
// tab in the indentation, brackets and quotes that are not closed, lines that stand at no depth of
// those above, a missing blank after a colon, a glob that is taken for an alias. Nothing where it
// finds none.
std::optional<TextFault> FindFault(std::string_view text, int line, int byte);

}  // namespace ada::config
