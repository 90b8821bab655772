// The names of our keys and words in other programs: hints for users who know those. They only
// extend messages about unknown keys and words (keys/section.cpp, keys/keys.cpp); a foreign name is
// never accepted instead of ours.
#pragma once
#include <string>
#include <vector>

#include "config/yaml/node.h"

namespace ada::config {

// The hint for a key `name` that the section ("optimizer"; "" is the document) does not have, or
// not for its `choice` ("dynamic"; may be empty): "did you mean 'lr'?", or where the key is, or
// what replaces it, which may depend on its `value`. Empty: there is no hint. Letter case and the
// difference between - and _ are ignored. Called for unknown keys, and for known ones that the
// choice does not have.
std::string ForeignKeyHint(const std::string& section, const std::string& choice,
                           const std::string& name, const YamlNode& value);

// Where `entry` of the document is what others call one of our sections (`trainer`): what its own
// keys are here, with the key of each that is known.
struct ForeignEntry {
  const YamlNode* key;
  std::string hint;
};
std::vector<ForeignEntry> ForeignEntries(const Entry& entry);

// The same for a word that is no value of the key at `path` ("schedule.kind"), and for the name of
// a number format there.
std::string ForeignWordHint(const std::string& path, const std::string& word);
std::string ForeignFormatHint(const std::string& path, const std::string& name);

// "; " and the hint; "" if there is none.
std::string AsEnding(const std::string& hint);

// What is below is for foreign_names.cpp only. Letter case and - for _ count nothing in names and
// words of other programs.
std::string PlainName(const std::string& name);
// A plain name without everything up to its last dot: "float16" of "torch.float16".
std::string WithoutModule(const std::string& plain);

// The sections for a word that names a whole training mode ("16_mixed"), to which several of our
// sections correspond; the hint is a piece of YAML to copy: "that is precision: {format: fp16,
// preset: autocast} with scaling: {policy: dynamic}". Empty: unknown word.
std::string PrecisionOfWord(const std::string& plain_word);

// The sections that `plain_name: value` of another trainer means ("amp", "fp8_format"); the value
// decides. Empty: it is no key of formats or loss scaling.
std::string PrecisionOfKey(const std::string& plain_name, const YamlNode& value);

}  // namespace ada::config
