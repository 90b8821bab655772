// What the splits of a data set are called in its files.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// What people call the split on which a training is evaluated while it goes on.
const std::vector<std::string>& ValidationNames();

// These are names of folders or lists below the set's path.
struct SplitsOfSet {
  std::string train, validation, test;  // validation "": there is none
};

// The names that `choices` give, where they do. Else `train` and `test`, in whose place stands one
// of ValidationNames where `is_there` knows no `test`; beside `test` that one is the validation
// split, unless `published`: then the set has no validation split that nobody asks for. DataError
// where several of ValidationNames are there.
SplitsOfSet SplitsByNames(const FileChoices& choices, const std::string& train,
                          const std::string& test, bool published,
                          const std::function<bool(const std::string& name)>& is_there);

}  // namespace ada::data
