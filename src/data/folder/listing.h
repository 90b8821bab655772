// The pictures below a folder of class folders, in the order and with the labels of torchvision's
// ImageFolder: classes in byte order of their names; within a class folder by folder, those below
// it included (links followed), folders and files in byte order. Names are kept, not pictures.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/file_fault.h"
#include "data/picture_files.h"

namespace ada::data {

// Holds what a walk through one split finds. `files` and `labels` have the same order, which
// decides the numbers of images.
struct FolderListing {
  std::string folder;
  std::vector<std::string> classes;
  NameList files;             // "class/name", as below `folder`
  std::vector<Label> labels;  // of each file
  // Below `folder`: files of other endings, which are not read, but for hidden ones and those that
  // file managers leave; folders whose names begin with a dot, which are read.
  std::vector<std::string> not_read = {}, hidden = {};
};

inline constexpr std::size_t kNamedClasses = 5;  // in a message

// Lists `folder`. Throws DataError: it or a folder below it cannot be listed, a link leads back to
// a folder above it, no class folders, more than kMostClasses of them, classes without pictures;
// these go to `faults` instead where that is not null, unless no class has pictures.
FolderListing ListPictures(const std::string& folder, const std::string& split = "",
                           FileFaults* faults = nullptr);

// "3 files that are no JPEG, PNG or WebP by their names (2 .gif, 1 .bmp): cat/a.gif, ...".
std::string NotReadText(const std::vector<std::string>& files);

// The paths of all pictures in a folder and below it, folder by folder, in byte order; and the
// files of other endings. DataError: one cannot be listed, a link leads back. `predict` takes
// pictures from any folder, without classes.
struct FolderPictures {
  std::vector<std::string> pictures, not_read;
};
FolderPictures PicturesBelow(const std::string& folder);

// The names of the folders in `folder`, sorted; DataError where it cannot be listed.
std::vector<std::string> FoldersIn(const std::string& folder);
// The names of the pictures that lie in `folder` itself, sorted, and whether there is one.
std::vector<std::string> PicturesIn(const std::string& folder);
bool HoldsPictures(const std::string& folder);

}  // namespace ada::data
