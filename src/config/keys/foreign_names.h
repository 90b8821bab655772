// The names of our keys and words in other programs: hints for users who know those. They only
// extend messages about unknown keys and words (keys/section.cpp, keys/keys.cpp); a foreign name is
// never accepted instead of ours.
#pragma once
#include <string>

namespace ada::config {

// The hint for a name that a section ("optimizer"; "" is the document) does not have as a key:
// "did you mean 'lr'?", or what replaces it. Empty: there is none. Letter case and the difference
// between - and _ are ignored.
std::string ForeignKeyHint(const std::string& section, const std::string& name);

// The same for a word that is no value of the key at `path` ("schedule.kind"), and for one that
// names no number format.
std::string ForeignWordHint(const std::string& path, const std::string& word);
std::string ForeignFormatHint(const std::string& name);

// "; " and the hint; "" if there is none.
std::string AsEnding(const std::string& hint);

}  // namespace ada::config
