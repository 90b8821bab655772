#include "data/picture_files.h"

#include <utility>

namespace ada::data {

void NameList::Add(std::string_view folder, std::string_view name) {
  ((text_ += folder) += '/') += name;
  ends_.push_back(text_.size());
}

std::string_view NameList::operator[](std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(text_).substr(begin, ends_[at] - begin);
}

std::string TitleOfFile(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // all of it without a folder
  const std::size_t dot = name.rfind('.');
  return std::string(dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot));
}

PictureFiles::PictureFiles(std::string prefix, NameList names)
    : prefix_(std::move(prefix)), names_(std::move(names)) {}

std::string PictureFiles::NameOf(std::int64_t image) const {
  return prefix_ + std::string(names_[image]);
}

Picture PictureFiles::Read(std::int64_t image, const ChoosePart& part) const {
  const std::string path = NameOf(image);
  const std::vector<std::uint8_t> file = ReadPictureFile(path);
  const PictureSize size = SizeOfPicture(file, path);
  const Box box = part(size);
  const bool whole = box == Box{0, 0, size.height, size.width};
  return whole ? DecodePicture(file, path) : DecodePicture(file, path, box);
}

}  // namespace ada::data
