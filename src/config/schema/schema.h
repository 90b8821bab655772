// The keys of the configuration as data, made of the tables that the reader uses: for documentation
// and lists, and as a JSON Schema for editors (completion, checks while typing).
#pragma once
#include <string>
#include <vector>

namespace ada::config {

struct KeyInfo {
  std::string path;          // "scaling.init_scale", "model.layers[].kernel"
  std::string type;          // "integer", "list of words"
  std::string default_text;  // "required" where there is none
  std::string range;         // in words; empty: any
  std::string meaning;
  std::vector<std::string> only_for;  // choices of its section that have it; empty: all
  std::string discriminator;          // the key that makes this choice ("policy"); empty: none
  std::vector<std::string> only_for_second;  // the same for a choice below it ("preset")
  std::string second_discriminator;
};

// Every key of this version, in the order of the document. Maps stand before their own keys.
std::vector<KeyInfo> AllKeys();

// A document of JSON Schema, draft 2020-12.
std::string JsonSchema();

// The page configs/KEYS.md: every key with its type, default, range and meaning, in Markdown.
std::string KeysMarkdown();

}  // namespace ada::config
