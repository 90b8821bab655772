// What a checkpoint remembers of its data set besides the names of classes, so that a run which
// goes on with other files says so.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/json_file.h"
#include "data/dataset.h"

namespace ada::train {

// Kept in checkpoints (CheckpointState::data_facts) and compared when a run goes on or a checkpoint
// is evaluated.
struct DataFacts {
  struct Split {
    std::int64_t images = 0;
    // Images of each class, of detection boxes; empty: labels are images, or there are none.
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

// A member of a checkpoint's JSON. DataError naming the field that is not what it must be.
nlohmann::ordered_json JsonOf(const DataFacts& facts);
DataFacts DataFactsFrom(const JsonFields& fields);

// What is no longer as it was `then`, in one line; "": nothing. names: of the classes, may be
// empty.
std::string ChangesOfData(const DataFacts& then, const DataFacts& now,
                          const std::vector<std::string>& names);

}  // namespace ada::train
