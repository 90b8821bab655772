// What other programs call our keys and words: a hint for those who come from there.
// They only add to messages about unknown keys and words (keys/section.cpp, keys/keys.cpp); no
// foreign name is ever accepted in place of ours.
#pragma once
#include <string>
#include <vector>

#include "config/yaml/node.h"

namespace ada::config {

// What to say of the key `name` of a section ("optimizer"; "" is the document) that is none there,
// or none of the section's `choice` ("dynamic"; may be empty): "did you mean 'lr'?", or where it
// stands, or what takes its place, which may depend on its `value`. Empty: nothing is known of it.
// Letter case and - for _ count nothing.
// Called for an unknown key, and for a known one that the choice does not have.
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

// "; " before a hint; nothing where there is none.
std::string AsEnding(const std::string& hint);

// What other trainers say of formats and loss scaling, as the sections that mean the same here.
// Keys such as `fp16: true` or `amp_level: O2` mean several of our sections at once, so their hints
// are pieces of YAML to copy. Called by foreign_names.cpp only.

// Letter case and - for _ count nothing in names and words of other programs.
std::string PlainName(const std::string& name);
// A plain name without what stands before its last dot: "float16" of "torch.float16".
std::string WithoutModule(const std::string& plain);

// The sections that a word for the whole way of training means ("16_mixed"): "that is precision:
// {format: fp16, preset: autocast} with scaling: {policy: dynamic}". Empty: it is no such word.
std::string PrecisionOfWord(const std::string& plain_word);

// The sections that `plain_name: value` of another trainer means ("amp", "fp8_format"); the value
// decides. Empty: it is no key of formats or loss scaling.
std::string PrecisionOfKey(const std::string& plain_name, const YamlNode& value);

}  // namespace ada::config
