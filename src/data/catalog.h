// The table of data sets: what is known about each one before its files are read (shape,
// counts, names of files, origin) and which reader it needs. The configuration gets the names
// from here.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ada::data {

struct Dataset;
struct FileLayout;

// Where the images of a data set come from.
enum class Origin : std::uint8_t {
  kPublished,     // files whose names and layout are known
  kFolder,        // pictures in class folders
  kLabelImages,   // pictures, and a label image for each
  kBoxes,         // pictures, and the boxes of each in an XML file
  kTensors,       // arrays of one file
  kText,          // files whose bytes are tokens
  kTokens,        // files of tokens
  kSeed,          // made up
  kOtherProgram,  // of a run that another program recorded: a name, and no images
};

// The order of the axes of images in arrays [n, ?, ?, ?]: rows, columns, channels, or channels
// first. kAuto: the axis of at most 4 values is that of the channels.
enum class ArrayLayout : std::uint8_t { kAuto, kHwc, kChw };

// The numbers that a file of tokens holds. kAuto: as its header says, else uint16.
enum class TokenType : std::uint8_t { kAuto, kByte, kUint16, kUint32 };

// The numbers of tokens are below the first; no sequence has more tokens than the second.
inline constexpr std::int64_t kMostTokens = 1'000'000;
inline constexpr std::int64_t kLongestSequence = 65'536;

// The names of one split's files, in the order that the layout says.
using FileNames = std::vector<std::string_view>;

// A row of the catalog holds constants of the program. For sets that the user brings (folder, voc,
// tensors and so on) most of them are empty, and the files say the rest.
struct DatasetFacts {
  std::string_view name = {}, title = {}, source = {};
  Origin origin = Origin::kPublished;
  const FileLayout* layout = nullptr;                    // of a published set; else null
  int height = 0, width = 0, channels = 0, classes = 0;  // 0 where the user's files say it
  int coarse_classes = 0;            // CIFAR-100: a coarse label stands before the fine one; else 0
  std::int64_t train = 0, test = 0;  // images of the published set
  FileNames train_files = {}, test_files = {};
  FileNames subfolders = {};  // where archives put the files, below the folder that was named
  // The folder below the data root that data/scripts/fetch.py makes; empty: it fetches no such set.
  std::string_view folder = {};
  std::string_view system_folder = {};  // where Debian's package puts the set; empty: there is none
  std::vector<double> mean = {}, std = {};  // per channel, of pixels / 255
  // The names of the labels 0, 1, ...; empty: a file `names_file`, with one name a line, may be
  // next to the other files and have them.
  std::vector<std::string_view> class_names = {};
  std::string_view names_file = {};

  int per_image() const { return height * width * channels; }
  bool has_path() const { return origin != Origin::kSeed && origin != Origin::kOtherProgram; }
  // Whether it holds only tokens and no images.
  bool has_tokens() const { return origin == Origin::kText || origin == Origin::kTokens; }
  // Whether its images stay in files of their own that are decoded one by one.
  bool decodes() const {
    return origin == Origin::kFolder || origin == Origin::kLabelImages || origin == Origin::kBoxes;
  }
};

// The files of one split. Lives for one call of Read or Inspect. It refers to what it is made of: a
// task that keeps a copy must end before that call does.
struct SplitFiles {
  const DatasetFacts& facts;
  const std::string& folder;
  const FileNames& names;
  std::int64_t images;        // as published
  const std::string& advice;  // what to do, at the end of messages about these files

  // Returns the path of one of the files, of NAME.gz where the layout allows it and NAME is
  // missing.
  std::string PathOf(std::string_view name) const;
};

// How files hold images and labels: a reader of such files. Both functions throw DataError where a
// file is missing or damaged.
struct FileLayout {
  bool packs = false;  // NAME.gz does where NAME is missing
  // Adds to `tasks` what reads a split into `into`, whose shape is set. Tasks run side by side.
  void (*add_tasks)(const SplitFiles& files, Dataset* into,
                    std::vector<std::function<void()>>* tasks);
  std::int64_t (*count)(const SplitFiles& files);  // the split's images, without reading them
};

// Shape and size of the data set that is made from the seed.
struct SyntheticSpec {
  int height = 32, width = 32, channels = 3, classes = 10;
  std::int64_t train = 2048, test = 512;
};

// All data sets, in the order of `ada-train datasets`. It is made at the first call; references to
// its rows stay valid.
const std::vector<DatasetFacts>& Catalog();
// Throws DataError with the names of the sets that have files where there is none of that name.
const DatasetFacts& FactsOf(std::string_view name);

// "mean [0.2860], std [0.3530]": what `normalize: standard` takes off and divides by.
std::string NormalizationText(const DatasetFacts& facts);

// The folder of all fetched data sets: $ADA_DATA, or `data` in the working directory.
std::string DataRoot();
// The folder that is read if `data.path` is not given: `folder` in DataRoot(), or `system_folder`
// if only that exists. "": the set has no such folder.
std::string DefaultPath(const DatasetFacts& facts);

// The advice at the end of every message about a damaged or missing file.
std::string FetchAdvice(const DatasetFacts& facts, const std::string& folder);

// The folder that holds the set's files: `folder` itself or one of `subfolders` below it. Throws
// DataError: no such folder, not a folder, none of the files in it.
std::string FindFolder(const DatasetFacts& facts, const std::string& folder);

}  // namespace ada::data
