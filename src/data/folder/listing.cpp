// Walks through folders as torchvision's os.walk with followlinks does, and sorts afterwards, so
// that the order does not depend on the file system. Links that lead back would make such a walk
// endless: each folder is compared with all above it by device and inode.
#include "data/folder/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::size_t kDeepest = 100;            // folders below each other
constexpr std::size_t kMostFolders = 1'000'000;  // of a class, counted by every way to them

// What lies in a folder.
struct FolderEntries {
  std::vector<std::string> folders, pictures, others;  // sorted
};

// Hidden files, and files that Windows puts next to pictures.
bool IsLeftByOthers(std::string_view name) {
  return name.starts_with('.') || name == "Thumbs.db" || name == "desktop.ini";
}

// Entries are classified by what they refer to: a link to a folder is a folder, and a dangling link
// is classified by its name.
FolderEntries EntriesOf(const std::string& folder) {
  FolderEntries entries;
  std::error_code error;
  std::filesystem::directory_iterator at(folder, error);
  for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    std::error_code unknown;  // of a link that leads nowhere: told when the file is read
    std::string name = at->path().filename().string();
    const bool is_folder = at->is_directory(unknown);
    RefuseMachineError(at->path().string(), unknown);
    if (is_folder)
      entries.folders.push_back(std::move(name));
    else if (IsPictureName(name))
      entries.pictures.push_back(std::move(name));
    else if (!IsLeftByOthers(name))
      entries.others.push_back(std::move(name));
  }
  if (error)
    ThrowUnread<DataError>(folder + ": cannot be listed: " + error.message(), error.value());
  for (auto* names : {&entries.folders, &entries.pictures, &entries.others})
    std::sort(names->begin(), names->end());
  return entries;
}

// The pictures of one class, folder by folder.
class ClassWalk {
 public:
  // `name`: of the class's folder; "": all that lies in `split`.
  ClassWalk(const std::string& split, const std::string& name) : split_(split) {
    // The split's own folder is above every class, and a link in a class may lead back to it.
    if (!name.empty()) NoteFolder(split_);
    Enter(name);
    // Folders are sorted by their paths: the walk goes down depth first, which is another order
    // where a name is the beginning of another.
    std::sort(found_.begin(), found_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  std::vector<std::string> Pictures() const {
    std::vector<std::string> paths;
    for (const auto& [folder, pictures] : found_)
      for (const std::string& picture : pictures)
        paths.push_back(Below(Below(split_, folder), picture));
    return paths;
  }
  const std::vector<std::string>& not_read() const { return not_read_; }

  void AddTo(FolderListing* listing, Label label) const {
    for (const auto& [folder, pictures] : found_) {
      for (const std::string& picture : pictures) listing->files.Add(folder, picture);
      listing->labels.insert(listing->labels.end(), pictures.size(), label);
    }
    listing->not_read.insert(listing->not_read.end(), not_read_.begin(), not_read_.end());
    listing->hidden.insert(listing->hidden.end(), hidden_.begin(), hidden_.end());
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;

  // Adds a folder to those above; DataError where it is among them already.
  void NoteFolder(const std::string& path) {
    struct stat facts {};
    if (stat(path.c_str(), &facts) != 0) {
      const int error = errno;
      ThrowUnread<DataError>(path + ": cannot be listed: " + std::strerror(error), error);
    }
    const Identity identity{facts.st_dev, facts.st_ino};
    const auto same = std::find(above_.begin(), above_.end(), identity);
    if (same != above_.end() || above_.size() > kDeepest)
      throw DataError(path + ": " +
                      (same != above_.end()
                           ? "a link that leads back to a folder above it"
                           : "more folders below each other than " + std::to_string(kDeepest)) +
                      ", so its pictures would have no end; remove it");
    if (++entered_ > kMostFolders)
      throw DataError(path + ": more than " + std::to_string(kMostFolders) +
                      " folders in one class, where links lead to the same folders again and "
                      "again; remove links");
    above_.push_back(identity);
  }

  static std::string Below(const std::string& folder, const std::string& name) {
    return folder.empty() ? name : name.empty() ? folder : folder + "/" + name;
  }

  // `name`: below the split's folder.
  void Enter(const std::string& name) {
    const std::string path = Below(split_, name);
    NoteFolder(path);
    FolderEntries entries = EntriesOf(path);
    if (name.substr(name.rfind('/') + 1).starts_with('.')) hidden_.push_back(name);
    for (const std::string& other : entries.others) not_read_.push_back(Below(name, other));
    if (!entries.pictures.empty()) found_.emplace_back(name, std::move(entries.pictures));
    for (const std::string& folder : entries.folders) Enter(Below(name, folder));
    above_.pop_back();
  }

  std::string split_;
  std::vector<Identity> above_;
  std::size_t entered_ = 0;  // folders
  std::vector<std::pair<std::string, std::vector<std::string>>> found_;
  std::vector<std::string> not_read_, hidden_;
};

}  // namespace

std::string NotReadText(const std::vector<std::string>& files) {
  constexpr std::size_t kNamedFiles = 3;
  std::map<std::string, std::int64_t> by_ending;
  for (const std::string& file : files) {
    const std::string name = file.substr(file.rfind('/') + 1);
    const std::size_t dot = name.rfind('.');
    // Endings are counted as they are written, so that the text shows what people see.
    ++by_ending[dot == std::string::npos ? "without an ending" : name.substr(dot)];
  }
  std::string endings;
  for (const auto& [ending, count] : by_ending)
    endings += (endings.empty() ? "" : ", ") + std::to_string(count) + " " + ending;
  return Counted(static_cast<std::int64_t>(files.size()), "file") +
         " of other endings than .jpg, .jpeg, .png and .webp (" + endings +
         "): " + FirstNames(files, kNamedFiles);
}

FolderListing ListPictures(const std::string& folder, const std::string& split,
                           FileFaults* faults) {
  FolderListing listing;
  listing.folder = folder;
  listing.classes = FoldersIn(folder);
  const std::string expected =
      "; expected a folder for each class, with its pictures (.jpg, "
      ".jpeg, .png, .webp) in it";
  if (listing.classes.empty()) throw DataError(folder + ": holds no folders" + expected);
  if (listing.classes.size() > static_cast<std::size_t>(kMostClasses))
    throw DataError(folder + ": holds " + std::to_string(listing.classes.size()) +
                    " folders; expected at most " + std::to_string(kMostClasses) + " classes");
  // Other files in empty classes (.gif, .tif) are the likely reason, so they are named.
  std::vector<std::string> empty, not_read;
  for (std::size_t k = 0; k < listing.classes.size(); ++k) {
    const std::int64_t before = listing.files.size();
    const auto others = static_cast<std::ptrdiff_t>(listing.not_read.size());
    ClassWalk(folder, listing.classes[k]).AddTo(&listing, static_cast<Label>(k));
    if (listing.files.size() > before) continue;
    empty.push_back(listing.classes[k]);
    not_read.insert(not_read.end(), listing.not_read.begin() + others, listing.not_read.end());
  }
  const std::string instead =
      not_read.empty() ? "" : ", and " + NotReadText(not_read) + ", which are not read";
  if (empty.size() == listing.classes.size())
    throw DataError(folder + ": none of its folders holds a picture: " +
                    FirstNames(empty, kNamedClasses) + instead + expected);
  if (!empty.empty() && faults == nullptr)
    throw DataError(folder + ": classes without pictures: " + FirstNames(empty, kNamedClasses) +
                    instead + expected);
  if (faults != nullptr)
    for (const std::string& name : empty)
      faults->push_back({FaultKind::kEmptyClass, true, split, folder + "/" + name,
                         "class " + Visible(name) + " has no pictures"});
  return listing;
}

FolderPictures PicturesBelow(const std::string& folder) {
  const ClassWalk walk(folder, "");
  return {walk.Pictures(), walk.not_read()};
}

std::vector<std::string> FoldersIn(const std::string& folder) { return EntriesOf(folder).folders; }

std::vector<std::string> PicturesIn(const std::string& folder) {
  return EntriesOf(folder).pictures;
}

bool HoldsPictures(const std::string& folder) { return !PicturesIn(folder).empty(); }

}  // namespace ada::data
