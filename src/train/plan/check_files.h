// `datasets --check`, and what --dry-run looks at: all files of a run's data set.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "data/file_fault.h"
#include "telemetry/log.h"

namespace ada::train {

// Returned by CheckFiles to the datasets command and to the dry run, which print it.
struct CheckedFiles {
  data::FileFaults faults;  // by split: those of its listing, then those of its files
  struct Split {
    std::string name;
    std::int64_t images = 0;
  };
  std::vector<Split> splits;
  // Why the set cannot be opened at all; empty: it can.
  std::string refusal;
};

// decodes: all of each file; false: headers. progress: the progress line, on a terminal. `known`:
// the same data set, opened before, whose headers are not read again; null: there is none.
CheckedFiles CheckFiles(const config::Config& config, bool decodes, bool progress,
                        telemetry::Log& log, const data::Splits* known = nullptr);

// "split train: FILE: what is wrong".
std::string FaultText(const data::FileFault& fault);

}  // namespace ada::train
