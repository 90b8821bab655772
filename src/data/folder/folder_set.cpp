// Finds the folders of the splits, lists them, and holds their classes against each other. Most of
// the file is about what people have instead of the layout that is asked for, so that the message
// can say which path to give.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "data/folder/listing.h"
#include "data/images/picture.h"
#include "data/names.h"
#include "data/picture_files.h"
#include "data/readers.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

namespace fs = std::filesystem;

constexpr int kRgb = 3;
constexpr const char* kLayout =
    "expected PATH/train/CLASS/PICTURES and PATH/val/CLASS/PICTURES (or valid, validation, dev, "
    "test)";
constexpr const char* kShare = "data.validation: 0.2 holds a fifth of each class back";

// Links to folders count. What cannot be looked at counts as missing, unless the machine fails.
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

// Throws for a PATH without train and says what it seems to be instead.
[[noreturn]] void FailWithoutTrain(const std::string& path) {
  std::string problem = path + ": holds no folder train; " + kLayout;
  std::error_code unknown;  // then the path stays relative
  const fs::path absolute = fs::absolute(path, unknown).lexically_normal();
  const fs::path whole = unknown ? fs::path(path) : absolute;
  const fs::path here = whole.has_filename() ? whole : whole.parent_path();
  if (LooksLikeSplit(path))
    problem = path + ": holds folders with pictures, so it is one split and not the set; " +
              kLayout + ": give the folder above it (" + here.parent_path().string() +
              ") if it has both; or " + kShare;
  else
    // Archives often hold the set in a folder of its own: one level down is looked at as well.
    for (const std::string& name : FoldersIn(path))
      if (HasFolder(here / name / "train"))
        problem = path + ": holds no folder train, but " + (here / name).string() +
                  " does; give that as data.path";
  throw DataError(problem);
}

// A class folder that is called like a split and holds folders is a root within the root.
void RefuseNestedRoot(const std::string& split) {
  std::vector<std::string> names = {"train", "test"};
  names.insert(names.begin() + 1, ValidationNames().begin(), ValidationNames().end());
  for (const std::string& name : names) {
    const std::string inner = split + "/" + name;
    if (!HasFolder(inner) || HoldsPictures(inner) || FoldersIn(inner).empty()) continue;
    throw DataError(split + ": holds a folder " + name +
                    " that holds folders itself: a data set lies within a data set; expected class "
                    "folders there: give the inner one as data.path, or move it away");
  }
}

// Returns the names of `of` that `in` has not; both are sorted.
std::vector<std::string> Missing(const std::vector<std::string>& of,
                                 const std::vector<std::string>& in) {
  std::vector<std::string> missing;
  std::set_difference(of.begin(), of.end(), in.begin(), in.end(), std::back_inserter(missing));
  return missing;
}

// Adds faults of a single class, rather than of the whole set, to `faults` if that is not null.
void RequireSameClasses(const FolderListing& train, const FolderListing& other,
                        const std::string& split, FileFaults* faults) {
  // Labels are the numbers of sorted class folders: a class that is missing in one split would give
  // all after it another number there.
  const auto absent = Missing(train.classes, other.classes);
  const auto unknown = Missing(other.classes, train.classes);
  if (faults != nullptr && absent.size() < train.classes.size()) {
    for (const std::string& name : absent)
      faults->push_back({FaultKind::kEmptyClass, true, split, other.folder + "/" + name,
                         "no folder for class " + Visible(name) + " of " + train.folder});
    for (const std::string& name : unknown)
      faults->push_back({FaultKind::kLabel, true, split, other.folder + "/" + name,
                         "a class folder that " + train.folder + " does not have"});
    return;
  }
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

// Numbers the classes of a listing as `classes` has them; a class that is not there gets a number
// beyond them, which no check counts.
void RenumberClasses(const std::vector<std::string>& classes, FolderListing* listing) {
  std::vector<Label> numbers;
  for (const std::string& name : listing->classes) {
    const auto at = std::lower_bound(classes.begin(), classes.end(), name);
    const bool is_there = at != classes.end() && *at == name;
    numbers.push_back(static_cast<Label>(is_there ? at - classes.begin() : kMostClasses - 1));
  }
  for (Label& label : listing->labels) label = numbers[label];
  listing->classes = classes;
}

// Sizes stay 0: whoever needs them reads the header of the first picture (SizeOfFirst).
Dataset MakeDataset(FolderListing listing, const PictureRules& rules) {
  Dataset dataset;
  dataset.name = "folder";
  dataset.channels = kRgb;
  dataset.classes = static_cast<int>(listing.classes.size());
  dataset.labels = std::move(listing.labels);
  dataset.by_class = true;
  dataset.store =
      std::make_shared<PictureFiles>(listing.folder + "/", std::move(listing.files), rules);
  return dataset;
}

// Files that are not read, pictures that lie in no class folder among them, and hidden folders that
// are: of one split.
void AddListingWarnings(const FolderListing& listing, const std::string& split,
                        const FileChoices& choices, Splits* splits) {
  const std::vector<std::string> loose = PicturesIn(listing.folder);
  if (!loose.empty())
    splits->warnings.push_back(
        listing.folder + ": " + Counted(static_cast<std::int64_t>(loose.size()), "picture") +
        " in no class folder: " + FirstNames(loose, kNamedClasses) + "; not used");
  if (choices.faults != nullptr) {
    for (const std::string& name : loose)
      choices.faults->push_back({FaultKind::kNotRead, false, split, listing.folder + "/" + name,
                                 "a picture in no class folder; it is not used"});
    for (const std::string& name : listing.not_read)
      choices.faults->push_back({FaultKind::kNotRead, false, split, listing.folder + "/" + name,
                                 "no JPEG, PNG or WebP by its name; it is not used"});
    for (const std::string& name : listing.hidden)
      choices.faults->push_back({FaultKind::kHidden, false, split, listing.folder + "/" + name,
                                 "a folder whose name begins with a dot; its pictures are used"});
  }
  if (!listing.not_read.empty())
    splits->warnings.push_back(listing.folder + ": " + NotReadText(listing.not_read) +
                               "; they are not used");
  for (const std::string& name : listing.hidden)
    splits->warnings.push_back(listing.folder + "/" + name +
                               ": the name of this folder begins with a dot, and it is used as " +
                               (name.find('/') == std::string::npos ? "a class" : "any other") +
                               ", as torchvision does; remove it if it is none");
}

// The folders of a set's splits; "": there is none.
struct SplitFolders {
  std::string train, validation, test;
  std::string unused = {};  // a folder test without the classes, as competitions have it
};

// The only folder that can be the validation split; DataError if there are several.
std::string ValidationFolder(const std::string& base) {
  std::vector<std::string> found;
  for (const std::string& name : ValidationNames())
    if (HasFolder(base + "/" + name)) found.push_back(name);
  if (found.size() > 1)
    throw DataError(base + ": holds " + FirstNames(found, found.size()) +
                    ", which all stand for one split; expected one of them");
  return found.empty() ? "" : base + "/" + found.front();
}

// A test folder whose pictures have no classes is no split that could be evaluated.
bool HasAnyClassOf(const std::string& test, const std::string& train) {
  const std::vector<std::string> classes = FoldersIn(train);
  const std::vector<std::string> of_test = FoldersIn(test);
  return Missing(classes, of_test).size() < classes.size();
}

SplitFolders FindSplits(const std::string& path, const HeldBack& held_back) {
  const std::string base = WithoutLastSlash(path);
  SplitFolders found;
  if (!HasFolder(base + "/train")) {
    // A folder of classes is taken as the only split where the user asks to hold some of it back.
    if (!held_back.any() || !LooksLikeSplit(path)) FailWithoutTrain(path);
    found.train = base;
    return found;
  }
  found.train = base + "/train";
  found.validation = ValidationFolder(base);
  if (HasFolder(base + "/test")) found.test = base + "/test";
  const bool has_other = !found.validation.empty() || held_back.any();
  if (has_other && !found.test.empty() && !HasAnyClassOf(found.test, found.train))
    found.unused = std::exchange(found.test, "");
  if (found.test.empty()) found.test = std::exchange(found.validation, "");
  if (found.test.empty() && !held_back.any())
    throw DataError(path + ": holds train, but neither val (valid, validation, dev) nor test; " +
                    kLayout + "; or " + kShare);
  return found;
}

FolderListing ListSplit(const std::string& folder, const std::string& split,
                        const FileChoices& choices, Splits* splits) {
  RefuseNestedRoot(folder);
  FolderListing listing = ListPictures(folder, split, choices.faults);
  AddListingWarnings(listing, split, choices, splits);
  return listing;
}

}  // namespace

Splits OpenFolder(const std::string& path, const FileChoices& choices) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  RefuseMachineError(path, error);
  if (error && status.type() != fs::file_type::not_found)
    throw DataError(path + ": " + error.message() + "; " + kLayout);
  if (!fs::exists(status)) throw DataError(path + ": no such folder; " + kLayout);
  if (!fs::is_directory(status)) throw DataError(path + ": not a folder; " + kLayout);
  const SplitFolders folders = FindSplits(path, choices.held_back);
  Splits splits;
  FolderListing train = ListSplit(folders.train, "train", choices, &splits);
  splits.class_names = train.classes;
  const auto open = [&](const std::string& folder, const std::string& split) {
    FolderListing listing = ListSplit(folder, split, choices, &splits);
    RequireSameClasses(train, listing, split, choices.faults);
    if (listing.classes != train.classes) RenumberClasses(train.classes, &listing);
    return MakeDataset(std::move(listing), choices.pictures);
  };
  if (!folders.validation.empty()) splits.validation = open(folders.validation, "validation");
  if (!folders.test.empty()) splits.test = open(folders.test, "test");
  splits.train = MakeDataset(std::move(train), choices.pictures);
  if (folders.test.empty()) {
    Limit(splits.train, choices.limit_train);
    splits.test = SplitOff(splits.train, choices.held_back);
    splits.test_is_held_back = true;
    AddNote(&splits.note, path + ": has one split; what data.validation holds back of it, " +
                              Counted(splits.test.images(), "image") +
                              ", is evaluated as split test");
  }
  if (!folders.unused.empty())
    AddNote(&splits.note,
            (folders.test.empty() ? "" : folders.test + " is evaluated as split test; ") +
                folders.unused + " has none of the classes and is not read");
  return splits;
}

PictureSize SizeOfFirst(const Dataset& dataset, bool skip_broken) {
  // The set has at least one image: listing refuses empty ones.
  for (std::int64_t i = 0;; ++i) {
    try {
      return dataset.store->HeaderOf(dataset.NumberInFiles(i)).size;
    } catch (const DataError&) {
      if (!skip_broken || i + 1 == dataset.images()) throw;
    }
  }
}

void RequireOneSize(const Dataset& dataset, PictureSize wanted,
                    const std::function<PictureSize(PictureSize)>& after, bool skip_broken) {
  for (std::int64_t i = 0; i < dataset.images(); ++i) {
    const std::int64_t number = dataset.NumberInFiles(i);
    PictureSize size;
    try {
      size = dataset.store->HeaderOf(number).size;
    } catch (const DataError&) {
      if (!skip_broken) throw;
      continue;
    }
    const PictureSize becomes = after(size);
    if (becomes == wanted) continue;
    throw DataError(dataset.store->NameOf(number) + ": " + SizeText(size) +
                    (becomes == size ? "" : ", resized " + SizeText(becomes)) +
                    ", and the first picture gives " + SizeText(wanted) +
                    ": the network takes one size; set data.resize and data.center_crop (for "
                    "training: data.augment.random_resized_crop)");
  }
}

}  // namespace ada::data
