// Names in data sets: lists of them in files, and what people call their splits.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// A name of a text file that holds one in each line: a list of images, names of classes.
struct NameInFile {
  std::string name;
  int line = 0;  // from 1
};

// Which part of a line is the name.
enum class NamePart : std::uint8_t { kWholeLine, kFirstWord };

// The names, in the file's order; empty lines have none, and a byte order mark before the first is
// passed over. DataError naming file and line: it cannot be read or is larger than `most_bytes`, a
// name has a control character (as text of 16 bits a character has), or is there twice.
std::vector<NameInFile> ReadNamesFile(const std::string& path, std::uint64_t most_bytes,
                                      NamePart part);

// What people call the split on which a training is evaluated while it goes on.
const std::vector<std::string>& ValidationNames();

// These are names of folders or lists below the set's path.
struct SplitsOfSet {
  std::string train, validation, test;  // validation "": there is none
};

// The names in `choices`, if given. Otherwise `train` and `test`; if `is_there` finds no `test`,
// one of ValidationNames is used instead; next to `test` that is the validation split, except if
// `published`: then there is a validation split only if it is requested. DataError if several of
// ValidationNames exist.
SplitsOfSet SplitsByNames(const FileChoices& choices, const std::string& train,
                          const std::string& test, bool published,
                          const std::function<bool(const std::string& name)>& is_there);

}  // namespace ada::data
