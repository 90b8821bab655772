// Decides which of the names that people give their splits stand for which split of a run.
#include "data/split_names.h"

#include "core/error.h"
#include "core/text.h"

namespace ada::data {

const std::vector<std::string>& ValidationNames() {
  static const std::vector<std::string> names = {"val", "valid", "validation", "dev"};
  return names;
}

SplitsOfSet SplitsByNames(const FileChoices& choices, const std::string& train,
                          const std::string& test, bool published,
                          const std::function<bool(const std::string& name)>& is_there) {
  SplitsOfSet names{choices.train.empty() ? train : choices.train, choices.validation_split,
                    choices.test.empty() ? test : choices.test};
  if (!choices.test.empty() || !choices.validation_split.empty()) return names;
  // A published set with a split of its own to test on is taken as its authors use it.
  const bool has_test = is_there(test);
  if (has_test && published) return names;
  std::vector<std::string> found;
  for (const std::string& name : ValidationNames())
    if (name != names.train && is_there(name)) found.push_back(name);
  if (found.size() > 1)
    throw DataError("data.path: holds the splits " + FirstNames(found, found.size()) +
                    ", which all stand for validation; name one of them in data.splits.validation");
  if (found.empty()) return names;
  // Without a test the validation split is what the run is evaluated on, so it is split `test`.
  (has_test ? names.validation : names.test) = found.front();
  return names;
}

}  // namespace ada::data
