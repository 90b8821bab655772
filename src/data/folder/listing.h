// The pictures below a folder of class folders, in the order and with the labels of torchvision's
// ImageFolder: classes in byte order of their names; within a class folder by folder, those below
// it included (links followed), folders and files in byte order. Names are kept, not pictures.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/picture_files.h"

namespace ada::data {

struct FolderListing {
  std::string folder;
  std::vector<std::string> classes;
  NameList files;             // "class/name", as below `folder`
  std::vector<Label> labels;  // of each file
};

inline constexpr std::size_t kNamedClasses = 5;  // in a message

// Whether a file is taken for a picture: .jpg .jpeg .png, in any case.
bool IsPictureName(std::string_view name);

// Lists `folder`. Throws DataError: it or a folder below it cannot be listed, a link leads back to
// a folder above it, no class folders, more than kMostClasses of them, classes without pictures.
FolderListing ListPictures(const std::string& folder);

// The names of the folders in `folder`, sorted; DataError where it cannot be listed.
std::vector<std::string> FoldersIn(const std::string& folder);
// Whether a picture lies in `folder` itself.
bool HoldsPictures(const std::string& folder);

}  // namespace ada::data
