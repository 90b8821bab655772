// Images that are files of their own, decoded when they are asked for, and what their headers say.
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

// What the headers of many picture files say: each is read once, whoever asks first. A run asks for
// them when it reckons its memory, when it warns of surprises, and where label images are turned.
// Safe from several threads.
class PictureHeaders {
 public:
  // Returns what `NeedsOfPictureFile(path, rules)` returned when it was first asked of the picture
  // with this number; throws what that throws, and then asks again the next time.
  PictureNeeds Of(std::int64_t number, const std::string& path, const PictureRules& rules) const;
  // Takes what is known of a picture already.
  void Remember(std::int64_t number, const PictureNeeds& needs) const;

 private:
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::int64_t, PictureNeeds> known_;
};

// Many names in one block of memory. A set may have millions of files, and a string for each would
// take several times the memory.
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
  // What is known of an image's header already.
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
