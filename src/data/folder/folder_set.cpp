#include "data/folder/folder_set.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "core/data_files.h"
#include "core/error.h"
#include "core/text.h"
#include "data/folder/listing.h"
#include "data/images/picture.h"
#include "data/picture_files.h"

namespace ada::data {
namespace {

namespace fs = std::filesystem;

constexpr int kRgb = 3;
constexpr std::array<const char*, 3> kSplitNames = {"train", "val", "test"};
constexpr const char* kLayout =
    "expected PATH/train/CLASS/PICTURES and PATH/val/CLASS/PICTURES (or PATH/test/...)";

bool HasFolder(const fs::path& path) {
  std::error_code error;
  const bool is_folder = fs::is_directory(path, error);
  RefuseMachineError(path.string(), error);
  return is_folder;
}

// Whether a folder of `folder` holds pictures: then it may be a split.
bool LooksLikeSplit(const std::string& folder) {
  const std::vector<std::string> folders = FoldersIn(folder);
  return std::any_of(folders.begin(), folders.end(),
                     [&](const std::string& name) { return HoldsPictures(folder + "/" + name); });
}

// PATH has no train: what it is instead.
[[noreturn]] void FailWithoutTrain(const std::string& path) {
  std::string problem = path + ": holds no folder train; " + kLayout;
  const fs::path whole = fs::path(path).lexically_normal();
  const fs::path here = whole.has_filename() ? whole : whole.parent_path();
  if (LooksLikeSplit(path))
    problem = path + ": holds folders with pictures, so it is one split and not the set; " +
              kLayout + ": give the folder above it (" + here.parent_path().string() +
              ") if it has both";
  else
    for (const std::string& name : FoldersIn(path))
      if (HasFolder(here / name / "train"))
        problem = path + ": holds no folder train, but " + (here / name).string() +
                  " does; give that as data.path";
  throw DataError(problem);
}

// A class folder that is called like a split and holds folders is a root within the root.
void RefuseNestedRoot(const std::string& split) {
  for (const char* name : kSplitNames) {
    const std::string inner = split + "/" + name;
    if (!HasFolder(inner) || HoldsPictures(inner) || FoldersIn(inner).empty()) continue;
    throw DataError(split + ": holds a folder " + name +
                    " that holds folders itself: a data set lies within a data set; expected class "
                    "folders there: give the inner one as data.path, or move it away");
  }
}

std::vector<std::string> Missing(const std::vector<std::string>& of,
                                 const std::vector<std::string>& in) {
  std::vector<std::string> missing;
  std::set_difference(of.begin(), of.end(), in.begin(), in.end(), std::back_inserter(missing));
  return missing;
}

void RequireSameClasses(const FolderListing& train, const FolderListing& other) {
  const auto absent = Missing(train.classes, other.classes);
  const auto unknown = Missing(other.classes, train.classes);
  if (absent.size() == train.classes.size())
    throw DataError(other.folder + ": has none of the classes of " + train.folder + " (" +
                    FirstNames(train.classes, kNamedClasses) + "), but " +
                    FirstNames(unknown, kNamedClasses) + ": these are two different data sets");
  if (!absent.empty())
    throw DataError(
        other.folder + ": no folder for classes of " + train.folder + ": " +
        FirstNames(absent, kNamedClasses) +
        "; expected the same class folders in both, since their order makes the labels");
  if (!unknown.empty())
    throw DataError(other.folder + ": class folders that " + train.folder +
                    " does not have: " + FirstNames(unknown, kNamedClasses) +
                    "; expected the same class folders in both");
}

Dataset MakeDataset(FolderListing listing) {
  Dataset dataset;
  dataset.name = "folder";
  dataset.channels = kRgb;
  dataset.classes = static_cast<int>(listing.classes.size());
  dataset.labels = std::move(listing.labels);
  dataset.by_class = true;
  dataset.store = std::make_shared<PictureFiles>(listing.folder + "/", std::move(listing.files));
  return dataset;
}

}  // namespace

Splits OpenFolder(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  RefuseMachineError(path, error);
  if (error && status.type() != fs::file_type::not_found)
    throw DataError(path + ": " + error.message() + "; " + kLayout);
  if (!fs::exists(status)) throw DataError(path + ": no such folder; " + kLayout);
  if (!fs::is_directory(status)) throw DataError(path + ": not a folder; " + kLayout);
  const std::string base = WithoutLastSlash(path);
  if (!HasFolder(base + "/train")) FailWithoutTrain(path);
  const bool has_val = HasFolder(base + "/val"), has_test = HasFolder(base + "/test");
  if (!has_val && !has_test)
    throw DataError(path + ": holds train, but neither val nor test; " + kLayout);
  const std::string other = base + (has_val ? "/val" : "/test");
  for (const std::string& split : {base + "/train", other}) RefuseNestedRoot(split);
  FolderListing train = ListPictures(base + "/train"), test = ListPictures(other);
  RequireSameClasses(train, test);
  Splits splits;
  splits.class_names = train.classes;
  splits.train = MakeDataset(std::move(train));
  splits.test = MakeDataset(std::move(test));
  if (has_val && has_test)
    splits.note = base + ": val is evaluated as split test; its folder test is not read";
  return splits;
}

PictureSize SizeOfFirst(const Dataset& dataset, bool skip_broken) {
  for (std::int64_t i = 0;; ++i) {
    const std::string path = dataset.store->NameOf(dataset.NumberInFiles(i));
    try {
      return SizeInPictureFile(path);
    } catch (const DataError&) {
      if (!skip_broken || i + 1 == dataset.images()) throw;
    }
  }
}

void RequireOneSize(const Dataset& dataset, PictureSize wanted,
                    const std::function<PictureSize(PictureSize)>& after, bool skip_broken) {
  for (std::int64_t i = 0; i < dataset.images(); ++i) {
    const std::string path = dataset.store->NameOf(dataset.NumberInFiles(i));
    PictureSize size;
    try {
      size = SizeInPictureFile(path);
    } catch (const DataError&) {
      if (!skip_broken) throw;
      continue;
    }
    const PictureSize becomes = after(size);
    if (becomes == wanted) continue;
    throw DataError(path + ": " + SizeText(size) +
                    (becomes == size ? "" : ", resized " + SizeText(becomes)) +
                    ", and the first picture gives " + SizeText(wanted) +
                    ": the network takes one size; set data.resize and data.center_crop (for "
                    "training: data.augment.random_resized_crop)");
  }
}

}  // namespace ada::data
