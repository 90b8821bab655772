// What a checkpoint stores about its data: which files they are, the network's input, and the names
// of the classes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "io/json_file.h"
#include "number/tensor.h"

namespace ada::run {

// What a checkpoint remembers of its data set besides the names of classes, so that a run which
// goes on with other files says so. Kept in checkpoints (CheckpointState::data_facts) and compared
// when a run goes on or a checkpoint is evaluated.
struct DataFacts {
  struct Split {
    std::int64_t images = 0;
    // Images of each class (detection: boxes); empty: labels are images, or there are no labels.
    std::vector<std::int64_t> by_class;
    friend bool operator==(const Split&, const Split&) = default;
  };
  Split train, test;
  std::string hash;  // of the names and sizes of all files, of labels and boxes
};

// Facts about the splits as the files have them (before data.limit): all bytes of images in memory,
// a sample of tokens. `validation`: where the files say it.
DataFacts DataFactsOf(const data::Dataset& train, const data::Dataset& test,
                      const data::Dataset& validation = {});

// A hash of the sizes and times of change of all files of these splits, and of what lies at the
// paths of the configuration: it differs where a file was written anew.
std::string TimesOfFiles(const std::vector<std::string>& paths,
                         const std::vector<const data::Dataset*>& splits);

// A member of a checkpoint's JSON. DataError naming the field that is not what it must be.
nlohmann::ordered_json JsonOf(const DataFacts& facts);
DataFacts DataFactsFrom(const JsonFields& fields);

// Describes in one line what has changed since `then`; "": nothing has. names: of the classes; may
// be empty.
std::string ChangesOfData(const DataFacts& then, const DataFacts& now,
                          const std::vector<std::string>& names);

// The network's input and the names of the classes: all that predicting a photo needs from a data
// set. A checkpoint stores it, so that the data set need not be present.
struct InputFacts {
  Shape image;                           // that the network takes; n is 1
  std::vector<double> mean, std;         // of the normalization, by channel; empty: none
  std::vector<std::string> class_names;  // empty: they are unknown
};

// As a member of a checkpoint's JSON: {"height", "width", "channels", "mean", "std",
// "class_names"}; bytes of a name that are not valid UTF-8 are written as \x1b (their hex code).
nlohmann::ordered_json JsonOf(const InputFacts& facts);
// DataError naming the field that is not what it must be.
InputFacts InputFactsFrom(const JsonFields& fields);

// The names of the data's classes before images are read; empty: they are unknown.
std::vector<std::string> NamesOfClasses(const config::Config& config,
                                        const data::DatasetInfo& info);

// The class's name, or its number if it has none.
std::string ClassName(const std::vector<std::string>& names, int label);

// Throws DataError where the classes of the checkpoint at `path` and those of the data differ:
// labels are numbers, so that with other names, or another order, a network would silently be
// evaluated, and trained further, on wrong labels. Does nothing if either has no names, or if
// `known` is empty (written by an earlier version).
void RequireSameClasses(const std::string& path, const std::optional<InputFacts>& known,
                        const config::Config& config, const data::DatasetInfo& info);
}  // namespace ada::run