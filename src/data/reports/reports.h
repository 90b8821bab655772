// What people are told of a data set before anything is trained on it: faults of its files and
// differences between its images, and a sheet of the images of a batch.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/dataset.h"
#include "data/file_fault.h"
#include "data/loader.h"

namespace ada::data {

// Says how one split is checked. It must outlive the call, and `progress` is called in the caller's
// thread.
struct FileCheckSpec {
  bool decodes = true;       // all of each file; false: headers, and whether files end early
  bool skip_broken = false;  // data.on_broken: skip
  // If images must come out in one size: that size, and what each stored size becomes.
  PictureSize wanted = {};
  std::function<PictureSize(PictureSize)> after = {};
  std::vector<std::string> class_names = {};
  // The same split, opened before: it may have read headers; null: none.
  const Dataset* known = nullptr;
  std::function<void(std::int64_t done)> progress = {};  // images of the split
};

// Checks the splits of a set, one after the other. Faults of a split are in the order of its files.
// `data.on_broken` decides which faults would end a run (FileFault::ends_run), not which are
// reported. A checker remembers a hash of each file, so that a picture in two splits is found;
// without decoding nothing is hashed, and no duplicate is found.
class FileChecker {
 public:
  explicit FileChecker(FileFaults* faults) : faults_(faults) {}
  // Throws only DeviceError.
  void Check(const Dataset& dataset, const std::string& split, const FileCheckSpec& spec);

 private:
  struct Looked;
  // CheckRange looks at images begin..end - 1, from several threads at a time, and writes only
  // their entries of `all`. Report puts them into `faults_` afterwards, in the order of the files,
  // with those faults that only all images together show.
  void CheckRange(const Dataset& dataset, const FileCheckSpec& spec, std::int64_t begin,
                  std::int64_t end, std::vector<Looked>* all) const;
  void Report(const Dataset& dataset, const std::string& split, const FileCheckSpec& spec,
              const std::vector<Looked>& all);
  void ReportClasses(const Dataset& dataset, const std::string& split, const FileCheckSpec& spec,
                     const std::vector<std::int64_t>& of_class);

  FileFaults* faults_;
  std::map<std::string, std::string> by_hash_;  // "FILE of split train", of the splits before
};

inline constexpr int kMostOnSheet = 64;

// The first images of `batch`, at most kMostOnSheet, side by side; small ones enlarged, large ones
// made smaller. Normalization by `mean` and `std` is undone; fp32 values that leave 0..1 all the
// same are spread from the smallest to the largest of the batch. Below each its class's name, or
// its number where `names` has none.
Picture DrawSheet(const Batch& batch, const ImageShape& shape, const LoaderSpec& spec,
                  const std::vector<std::string>& names);

}  // namespace ada::data
