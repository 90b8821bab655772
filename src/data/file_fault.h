// Faults of a data set's files, and notes about them: collected by a check of all files, where a
// run would throw the first one or log a short form.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "error.h"

namespace ada::data {

// The kinds that reports of a check count by; their words below are part of its output.
enum class FaultKind : std::uint8_t {
  kUnreadable,  // no picture, damaged, missing, or its labels are
  kCut,         // the file ends before its pixels do
  kSize,        // another size than the others, or than its labels have
  kSixteenBit,  // gray that is cut at 255
  kGray,        // gray among colors
  kExif,        // turned by EXIF, which is not applied
  kPalette,
  kAlpha,
  kDuplicate,   // the same file in two splits
  kEmptyClass,  // no picture, pixel or box
  kBox,         // empty, inverted, or outside its picture
  kLabel,       // that no class has
  kNotRead,     // a file in a class folder that is no JPEG, PNG or WebP; a folder among texts
  kHidden,      // a folder whose name begins with a dot
  kUnpaired,    // a label image without a picture
  kEncoding,    // a text's bytes that are none, numbers that look wider than they are read
  kNoTarget,    // a split without anything that the loss looks at
};

struct FaultWord {
  FaultKind kind;
  std::string_view word;
};
inline constexpr auto kFaultWords = std::to_array<FaultWord>({
    {FaultKind::kUnreadable, "unreadable"},
    {FaultKind::kCut, "cut"},
    {FaultKind::kSize, "size"},
    {FaultKind::kLabel, "label"},
    {FaultKind::kEmptyClass, "empty_class"},
    {FaultKind::kBox, "box"},
    {FaultKind::kSixteenBit, "sixteen_bit"},
    {FaultKind::kExif, "exif"},
    {FaultKind::kDuplicate, "duplicate"},
    {FaultKind::kGray, "grey"},
    {FaultKind::kPalette, "palette"},
    {FaultKind::kAlpha, "alpha"},
    {FaultKind::kNotRead, "not_read"},
    {FaultKind::kHidden, "hidden"},
    {FaultKind::kUnpaired, "unpaired"},
    {FaultKind::kEncoding, "encoding"},
    {FaultKind::kNoTarget, "no_target"},
});

// A file cannot be used, and why is known. Decoders and readers throw it where a DataError would
// do, so that a check can name the kind of fault.
class FaultyFile : public DataError {
 public:
  FaultyFile(FaultKind kind, const std::string& message) : DataError(message), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

// One line of such a report. `file` may be empty: the text then names what is at fault.
struct FileFault {
  FaultKind kind = FaultKind::kUnreadable;
  bool ends_run = false;  // with data.on_broken: fail
  std::string split, file, text;
};
using FileFaults = std::vector<FileFault>;

// An image that cannot be used, which data.on_broken: skip leaves out: because of which of its
// files, and how that is said. Readers put these into Dataset::left_out, where `row` says nothing,
// and the loader into Batch::broken.
struct BrokenImage {
  int row = 0;             // of the batch, as it was to be
  std::int64_t image = 0;  // of the data set
  std::string file;        // the picture, or what holds its labels
  std::string message;
  FaultKind kind = FaultKind::kUnreadable;
};

// A file of an image that is not its picture cannot be used. Readers of label images and
// annotations throw this, so that Usable can name the right file.
class BrokenLabels : public FaultyFile {
 public:
  BrokenLabels(std::string file, const std::string& message,
               FaultKind kind = FaultKind::kUnreadable)
      : FaultyFile(kind, message), file_(std::move(file)) {}
  const std::string& file() const { return file_; }

 private:
  std::string file_;
};

// Calls `use`, which needs the files of image `image`, or keeps in `broken` why they cannot be
// used; false: they cannot. An error of the machine goes on its way.
template <class Use>
bool Usable(std::int64_t image, const std::string& picture, BrokenImage* broken, const Use& use) {
  try {
    use();
    return true;
  } catch (const BrokenLabels& error) {
    *broken = {0, image, error.file(), error.what(), error.kind()};
  } catch (const FaultyFile& error) {
    *broken = {0, image, picture, error.what(), error.kind()};
  } catch (const DataError& error) {
    *broken = {0, image, picture, error.what()};
  }
  return false;
}

// The line about an image that a split goes without.
inline std::string LeftOutText(const std::string& split, const BrokenImage& broken) {
  return "split " + split + ": " + broken.message + " (left out: data.on_broken)";
}

}  // namespace ada::data
