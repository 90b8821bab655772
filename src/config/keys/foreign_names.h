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

}  // namespace ada::config
