// Images in files of their own, decoded on request, and the information in their headers.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/dataset.h"
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

// --- What headers tell before any is decoded ---

// The memory that decoding needs while each thread of a loader holds a picture, from headers. A run
// adds it to the memory that it asks for before it starts: the threads of the loader may each
// decode one of the largest pictures at the same moment.
struct DecodingNeed {
  std::uint64_t bytes = 0;  // of as many pictures as there are threads, the largest of a split
  std::string largest;      // "FILE (500 x 375 pixels)"
};

// The needs of sets whose pictures are in files; nothing for others. If a set has more than 10,000
// pictures, that many, evenly spread, are examined. Unreadable pictures are ignored: decoding them
// will report their fault.
DecodingNeed NeedOfDecoding(const Splits& splits, int workers);

// What reading silently changes in pictures, which their owners may not expect, from headers. A
// line for each kind of surprise in a split whose pictures lie in files: 16-bit gray that is cut at
// 255, other 16-bit values whose low byte is dropped, an EXIF orientation that is not applied,
// alpha that is dropped. A split of more than 10,000 pictures is judged by so many of them, evenly
// spread, and the line says so. What cannot be read counts nothing.
std::vector<std::string> WarningsOfPictures(const Dataset& dataset, const std::string& split);

}  // namespace ada::data
