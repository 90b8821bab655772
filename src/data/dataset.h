// Labeled images: in memory, read from the files of a data set or made from the seed, or in a
// store that is read image by image. Or sequences of tokens. The loader turns them into batches.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/file_fault.h"
#include "data/labels.h"
#include "data/sample_sources.h"
#include "data/settings.h"
#include "io/memory.h"
#include "io/task.h"

namespace ada::data {

// Bytes of images; resize() leaves new elements uninitialized.
using PixelBytes = std::vector<std::uint8_t, PageAllocator<std::uint8_t>>;

using Label = std::uint16_t;
inline constexpr int kMostClasses = 65'536;

// Holds one split of a data set, which readers make and the loader, the check of files and the
// previews take. Where its images lie is one of three: in `pixels`, in `store` (of whose images
// `picked` and `first` say which are this set's), or, as sequences, in `tokens`. Copies share the
// store, the label images, the boxes and the tokens, all of which may be read from several threads.
struct Dataset {
  std::string name;
  // The shape of an image as it is stored; if sizes vary (a folder), that of the first
  // image.
  int height = 0, width = 0, channels = 0, classes = 0;
  PixelBytes pixels = {};  // [images, height, width, channels], where there is no store
  // [images]; zeros where the labels of an image are a label image or boxes.
  std::vector<Label> labels = {};
  // The images, if they are not in `pixels`, and the index of each of this set's images; none
  // picked: consecutive ones from `first` on.
  std::shared_ptr<const ImageStore> store = {};
  std::vector<std::uint32_t> picked = {};
  std::int64_t first = 0;  // of the files' images; after SplitLast also where there is no store
  bool by_class = false;   // sorted by class: a part of it is spread over all of it
  // The labels of segmentation and those of detection, by numbers in the files (NumberInFiles);
  // null where a label says all.
  std::shared_ptr<const LabelImages> label_images = {};
  std::shared_ptr<const std::vector<ImageObjects>> objects = {};
  // Language: the sequences, each of which counts as an image of [context, 1, 1] where images are
  // counted; the vocabulary is `classes`. Else null.
  std::shared_ptr<const TokenSet> tokens = {};
  // Images that the files name and the set goes without: what was found wrong when they were listed
  // (FileChoices::skip_broken).
  std::vector<BrokenImage> left_out = {};

  std::int64_t images() const {
    return tokens ? tokens->sequences() : static_cast<std::int64_t>(labels.size());
  }
  std::int64_t per_image() const { return std::int64_t{height} * width * channels; }
  Task task() const {
    return tokens         ? Task::kLanguage
           : label_images ? Task::kSegmentation
           : objects      ? Task::kDetection
                          : Task::kClassification;
  }
  // The number of image `i` in its split's files, in their order.
  std::int64_t NumberInFiles(std::int64_t i) const {
    return picked.empty() ? first + i : picked[static_cast<std::size_t>(i)];
  }
  // Image `i` of `count` that are spread evenly over all.
  std::int64_t SpreadImage(std::int64_t i, std::int64_t count) const {
    return (2 * i + 1) * images() / (2 * count);
  }
  // All its images as bytes of one size, one after the other; null: they are not, or not in memory.
  const std::uint8_t* bytes() const;
};
// The result of a reader: the splits, and what its files say about all of them.
struct Splits {
  Dataset train, test;
  Dataset validation = {};  // no images: the files have no such split
  // The files had no split to evaluate: `test` is what HeldBack asks to hold back of `train`.
  bool test_is_held_back = false;
  std::vector<double> mean, std;              // `normalize: standard`, per channel, of pixels / 255
  std::vector<std::string> class_names = {};  // of sets whose files say them
  std::string note = {};                      // for the user to know about the files
  std::vector<std::string> warnings = {};     // and should not overlook, one line each
};

// Adds to such a note.
void AddNote(std::string* note, const std::string& what);

// A folder as given, without a slash at its end.
std::string WithoutLastSlash(const std::string& path);

// How many of the training images are held back to be evaluated: a number of the last ones, or a
// share of each class, drawn by the seed.
struct HeldBack {
  std::int64_t count = 0;
  double share = 0;  // above 0 and below 1; 0: `count`
  std::uint64_t seed = 0;
  bool any() const { return count > 0 || share > 0; }
  // The number of images in this part of `images`: a share is at least one image, and not all.
  std::int64_t Of(std::int64_t images) const;
};

// The user's choices about files whose layout leaves something open. Each reader uses those that
// its files leave open and ignores the others.
struct FileChoices {
  std::vector<std::string> more_paths = {};   // voc: folders of further years
  std::vector<std::string> class_names = {};  // in the order of the labels; none: the set's own
  std::optional<int> ignored_label = {};    // camvid: of pixels without a class; -1: there is none
  LabelValues label_values = {};            // camvid: what the values of label images mean
  std::string train = {}, test = {};        // names of splits; "": the set's own
  std::string validation_split = {};        // "": the set's own, or none
  ArrayLayout layout = ArrayLayout::kAuto;  // tensors
  HeldBack held_back = {};                  // folder: where the files have no second split
  std::int64_t limit_train = 0;  // of such a folder: held back of the images that Limit leaves
  PictureRules pictures = {};
  // If not null: receives faults of files that would otherwise be thrown, or logged as a warning.
  FileFaults* faults = nullptr;
  // Images whose files are damaged or missing are left out: Dataset::left_out.
  bool skip_broken = false;
  bool language = false;  // tensors: sequences of tokens, not images
  TokenType token_type = TokenType::kAuto;
  int context = 0;        // tokens of a window; tensors: as many as a row has
  int vocabulary = 0;     // 0: as many as the files use
  double validation = 0;  // share of a text that is split `validation`
  // Whether listing continues after such an image.
  bool goes_on() const { return skip_broken || faults != nullptr; }
};

// Reads the set called `name`, one with a path, from `path`: of a published set its folder, or the
// subfolder that the set's archive makes there. CIFAR must have its published sizes; IDX files say
// theirs. Pictures of folders and tensors are only found: their images are read later, one by one.
// Throws DataError naming file and byte offset: missing, truncated, oversized, wrong magic, label
// out of range.
Splits Read(const std::string& name, const std::string& path, const FileChoices& choices = {});
// Learnable images: each class has its own random pattern, each image that pattern plus noise.
// Image i has label i % classes and depends on the seed, the shape, the classes and i alone. Throws
// ConfigError for sizes that make no sense.
Splits MakeSynthetic(const SyntheticSpec& spec, std::uint64_t seed);

// Shapes and sizes without reading images, for --dry-run and checks; throws DataError like Read if
// files are missing or have the wrong size. `found` avoids a second listing: a caller of Inspect
// that then needs the data can take it from there.
struct DatasetInfo {
  int height = 0, width = 0, channels = 0, classes = 0;
  std::int64_t train = 0, test = 0;
  std::int64_t validation = 0;  // that the files have, or held back
  std::int64_t in_memory = 0;   // bytes that each image takes there; 0: they stay in their files
  // What was found on the way, of sets whose images are read one by one.
  std::shared_ptr<Splits> found = {};
};
DatasetInfo Inspect(const std::string& name, const std::string& path,
                    const FileChoices& choices = {});

// The names of the labels 0, 1, ... of the set, one for each class; empty if they are unknown: the
// set has no files, or its list of names is not in `folder`. Throws DataError if there is no such
// folder, or if a list has another length.
std::vector<std::string> ClassNames(const std::string& name, const std::string& folder);

// Keeps the first `count` images (0, or more than there are: all) / splits the last `count` off
// (ConfigError where none would be left). With n images sorted by class, those kept or split off
// are spread evenly: numbers floor((2 j + 1) n / (2 count)) for j in 0..count-1.
void Limit(Dataset& dataset, std::int64_t count);
Dataset SplitLast(Dataset& dataset, std::int64_t count);
// Splits off what `held_back` says: SplitLast, or of each class (of a set without labels: of all)
// its part of HeldBack::Of(images), by largest remainders, drawn by the seed. Both keep their
// order.
Dataset SplitOff(Dataset& dataset, const HeldBack& held_back);

// One line each for `ada-train datasets`: name, shape, classes, images, source.
std::vector<std::string> ListDatasets();

}  // namespace ada::data
