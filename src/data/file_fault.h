// What is wrong with a data set's files, or is told of them: collected by a check of all files,
// where a run would throw the first or say the least.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

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
  kNotRead,     // a file in a class folder that is no JPEG, PNG or WebP
  kHidden,      // a folder whose name begins with a dot
  kUnpaired,    // a label image without a picture
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

// One line of such a report. `file` may be empty: then the text says what the fault is of.
struct FileFault {
  FaultKind kind = FaultKind::kUnreadable;
  bool ends_run = false;  // with data.on_broken: fail
  std::string split, file, text;
};
using FileFaults = std::vector<FileFault>;

}  // namespace ada::data
