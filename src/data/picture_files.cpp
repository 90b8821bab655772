// Headers are read without the lock: two threads may read the same one, and the first answer stays.
// Each call decodes one picture; where only a part is asked for, it decodes that part alone.
#include "data/picture_files.h"

#include <algorithm>
#include <array>
#include <utility>

#include "io/text.h"

namespace ada::data {

PictureNeeds PictureHeaders::Of(std::int64_t number, const std::string& path,
                                const PictureRules& rules) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(number);
    if (found != known_.end()) return found->second;
  }
  const PictureNeeds needs = NeedsOfPictureFile(path, rules);
  Remember(number, needs);
  return needs;
}

void PictureHeaders::Remember(std::int64_t number, const PictureNeeds& needs) const {
  const std::lock_guard lock(mutex_);
  known_.emplace(number, needs);
}

void NameList::Add(std::string_view folder, std::string_view name) {
  ((text_ += folder) += '/') += name;
  ends_.push_back(text_.size());
}

std::string_view NameList::operator[](std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(text_).substr(begin, ends_[at] - begin);
}

bool IsPictureName(std::string_view name) {
  const std::string lower =
      LowerCase(name.substr(name.size() - std::min<std::size_t>(name.size(), 5)));
  constexpr std::array<std::string_view, 4> kEndings = {".jpg", ".jpeg", ".png", ".webp"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return lower.ends_with(ending); });
}

std::string TitleOfFile(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // all of it without a folder
  const std::size_t dot = name.rfind('.');
  return std::string(dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot));
}

PictureFiles::PictureFiles(std::string prefix, NameList names, const PictureRules& rules)
    : prefix_(std::move(prefix)), names_(std::move(names)), rules_(rules) {}

std::string PictureFiles::NameOf(std::int64_t image) const {
  return prefix_ + std::string(names_[image]);
}

PictureNeeds PictureFiles::HeaderOf(std::int64_t image) const {
  return headers_.Of(image, NameOf(image), rules_);
}

Picture PictureFiles::Read(std::int64_t image, const ChoosePart& part) const {
  const std::string path = NameOf(image);
  const std::vector<std::uint8_t> file = ReadPictureFile(path);
  // The size is read from the file itself and not taken from `headers_`: the file may have been
  // replaced since, and callers that have labels for it compare the sizes.
  const PictureSize size = SizeOfPicture(file, path, rules_);
  const Box box = part(size);
  const bool whole = box == WholeOf(size);
  return whole ? DecodePicture(file, path, rules_) : DecodePicture(file, path, box, rules_);
}

}  // namespace ada::data
