#include "data/folder/listing.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/data_files.h"
#include "core/error.h"
#include "core/machine_error.h"
#include "core/text.h"

namespace ada::data {
namespace {

constexpr std::size_t kDeepest = 100;  // folders below each other

// What lies in a folder.
struct FolderEntries {
  std::vector<std::string> folders, pictures;  // sorted
};

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
  }
  if (error)
    ThrowUnread<DataError>(folder + ": cannot be listed: " + error.message(), error.value());
  std::sort(entries.folders.begin(), entries.folders.end());
  std::sort(entries.pictures.begin(), entries.pictures.end());
  return entries;
}

// The pictures of one class, folder by folder.
class ClassWalk {
 public:
  ClassWalk(const std::string& split, const std::string& name) : split_(split) {
    NoteFolder(split_);
    Enter(name);
    std::sort(found_.begin(), found_.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  void AddTo(FolderListing* listing, Label label) const {
    for (const auto& [folder, pictures] : found_) {
      for (const std::string& picture : pictures) listing->files.Add(folder, picture);
      listing->labels.insert(listing->labels.end(), pictures.size(), label);
    }
  }

 private:
  using Identity = std::pair<dev_t, ino_t>;

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
    above_.push_back(identity);
  }

  // `name`: below the split's folder.
  void Enter(const std::string& name) {
    const std::string path = split_ + "/" + name;
    NoteFolder(path);
    FolderEntries entries = EntriesOf(path);
    if (!entries.pictures.empty()) found_.emplace_back(name, std::move(entries.pictures));
    for (const std::string& folder : entries.folders) Enter(name + "/" + folder);
    above_.pop_back();
  }

  std::string split_;
  std::vector<Identity> above_;
  std::vector<std::pair<std::string, std::vector<std::string>>> found_;
};

}  // namespace

bool IsPictureName(std::string_view name) {
  std::string lower(name.substr(name.size() - std::min<std::size_t>(name.size(), 5)));
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::array<std::string_view, 3> kEndings = {".jpg", ".jpeg", ".png"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return lower.ends_with(ending); });
}

FolderListing ListPictures(const std::string& folder) {
  FolderListing listing;
  listing.folder = folder;
  listing.classes = FoldersIn(folder);
  const std::string expected =
      "; expected a folder for each class, with its pictures (.jpg, "
      ".jpeg, .png) in it";
  if (listing.classes.empty()) throw DataError(folder + ": holds no folders" + expected);
  if (listing.classes.size() > static_cast<std::size_t>(kMostClasses))
    throw DataError(folder + ": holds " + std::to_string(listing.classes.size()) +
                    " folders; expected at most " + std::to_string(kMostClasses) + " classes");
  std::vector<std::string> empty;
  for (std::size_t k = 0; k < listing.classes.size(); ++k) {
    const std::int64_t before = listing.files.size();
    ClassWalk(folder, listing.classes[k]).AddTo(&listing, static_cast<Label>(k));
    if (listing.files.size() == before) empty.push_back(listing.classes[k]);
  }
  if (empty.size() == listing.classes.size())
    throw DataError(folder + ": none of its folders holds a picture: " +
                    FirstNames(empty, kNamedClasses) + expected);
  if (!empty.empty())
    throw DataError(folder + ": classes without pictures: " + FirstNames(empty, kNamedClasses) +
                    expected);
  return listing;
}

std::vector<std::string> FoldersIn(const std::string& folder) { return EntriesOf(folder).folders; }

bool HoldsPictures(const std::string& folder) { return !EntriesOf(folder).pictures.empty(); }

}  // namespace ada::data
