// Images in files of their own, decoded on request, and the information in their headers.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/images/picture.h"
#include "data/sample_sources.h"

namespace ada::data {

// The headers of many picture files, each read once, on the first request. A run uses them to
// estimate its memory, to warn of surprises, and to rotate label images. Safe from several
// threads.
class PictureHeaders {
 public:
  // Returns what `NeedsOfPictureFile(path, rules)` returned when it was first asked of the picture
  // with this number; throws what that throws, and then asks again the next time.
  PictureNeeds Of(std::int64_t number, const std::string& path, const PictureRules& rules) const;
  // Stores what is already known about a picture.
  void Remember(std::int64_t number, const PictureNeeds& needs) const;

 private:
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::int64_t, PictureNeeds> known_;
};

// Many names in one block of memory. A set may have millions of files, and separate strings would
// need several times the memory.
class NameList {
 public:
  void Add(std::string_view folder, std::string_view name);  // "folder/name"
  std::int64_t size() const { return static_cast<std::int64_t>(ends_.size()); }
  std::string_view operator[](std::int64_t i) const;

 private:
  std::string text_;
  std::vector<std::uint64_t> ends_;
};

// Whether a file is taken for a picture: .jpg .jpeg .png .webp, in any case.
bool IsPictureName(std::string_view name);

// A file's name without its folder and its ending.
std::string TitleOfFile(std::string_view path);

// Serves sets whose images are files. It keeps names and, once they were read, headers, but no
// pixels: each picture is read from its file whenever it is asked for.
class PictureFiles final : public ImageStore {
 public:
  // `prefix` stands before each of `names`.
  PictureFiles(std::string prefix, NameList names, const PictureRules& rules);

  std::int64_t images() const override { return names_.size(); }
  std::string NameOf(std::int64_t image) const override;
  std::string TitleOf(std::int64_t image) const override { return TitleOfFile(names_[image]); }
  Picture Read(std::int64_t image, const ChoosePart& part) const override;
  PictureRules rules() const override { return rules_; }
  PictureNeeds HeaderOf(std::int64_t image) const override;
  // Stores what is already known about an image's header.
  void KnowHeader(std::int64_t image, const PictureNeeds& needs) {
    headers_.Remember(image, needs);
  }

 private:
  std::string prefix_;
  NameList names_;
  PictureRules rules_;
  PictureHeaders headers_;
};

}  // namespace ada::data
