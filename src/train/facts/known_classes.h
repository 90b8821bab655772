// Labels are numbers: data whose classes have other names, or another order, than those that a
// network was trained with would be judged, and trained on, by wrong labels without a word.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "train/facts/input_facts.h"

namespace ada::train {

// What the data's classes are called, before images are read; empty where nobody says it.
std::vector<std::string> NamesOfClasses(const config::Config& config,
                                        const data::DatasetInfo& info);

// Throws DataError where the classes of the checkpoint at `path` and those of the data differ.
// Nothing is said where one of the two has no names, or `known` is empty (an earlier version).
void RequireSameClasses(const std::string& path, const std::optional<InputFacts>& known,
                        const config::Config& config, const data::DatasetInfo& info);
// The same for the newest checkpoint of a run that can be read.
void RequireClassesOfRun(const config::Config& config, const data::DatasetInfo& info);

}  // namespace ada::train
