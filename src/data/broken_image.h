// Images that cannot be used, under data.on_broken: skip left out: of which of their files that is,
// and how it is said.
#pragma once
#include <cstdint>
#include <string>
#include <utility>

#include "core/error.h"
#include "data/file_fault.h"

namespace ada::data {

// Readers put these into Dataset::left_out, where `row` says nothing, and the loader into
// Batch::broken.
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
