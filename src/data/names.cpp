// Lists come from people and other programs: byte order marks, CRLF and blanks are passed over
// where they can mean nothing, and what looks like another encoding is refused. SplitsByNames
// decides which of the names that people give their splits stand for which split of a run.
#include "data/names.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlank = " \t\r\v\f";

// Returns the name in a line, which may be empty. Names of classes may hold blanks, names of images
// may not.
std::string_view NameIn(std::string_view line, NamePart part) {
  if (part == NamePart::kWholeLine)
    return line.substr(0, line.size() - (line.ends_with('\r') ? 1 : 0));
  line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
  return line.substr(0, line.find_first_of(kBlank));
}

bool HasControl(std::string_view name) {
  return std::any_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
  });
}

}  // namespace

std::vector<NameInFile> ReadNamesFile(const std::string& path, std::uint64_t most_bytes,
                                      NamePart part) {
  const std::string bytes = ReadDataFile(path, most_bytes);
  std::string_view text = bytes;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  std::vector<NameInFile> names;
  std::unordered_map<std::string_view, int> lines;  // of each name
  for (int line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view name = NameIn(text.substr(0, end), part);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (name.empty()) continue;
    const std::string place = path + ": line " + std::to_string(line) + ": ";
    // In UTF-16 every other byte of a plain name is NUL.
    if (HasControl(name))
      throw DataError(place + "the name " + Shown(name) +
                      " has a control character; expected a text file with a name in each line");
    const auto [first, is_new] = lines.emplace(name, line);
    if (!is_new)
      throw DataError(place + Shown(name) + " is there twice, first in line " +
                      std::to_string(first->second) + "; expected each name once");
    names.push_back({std::string(name), line});
  }
  return names;
}

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
