// Checks, before a command writes files, that these will not overwrite pictures that it reads.
#pragma once
#include <string>
#include <vector>

#include "train/assemble/assemble.h"

namespace ada::train {

// Throws ConfigError if a folder of predictions holds pictures or label images of the data set.
// Predictions are PNG files named like their pictures, in `folder` (except for detection) and in
// folders inside it.
void ProtectPicturesOfData(const std::string& folder, Task task, const RunData& data);
// The same check for single photos; also throws if two of them would be written as one file.
void ProtectPhotos(const std::string& folder, Task task, const std::vector<std::string>& photos);
// Throws ConfigError where `path` is one of the data set's pictures or label images.
void ProtectFileOfData(const std::string& path, const RunData& data);

// Throws ConfigError if the run's folder is the data set's, or lies in the folder of a split or
// among class folders.
void ProtectFoldersOfData(const config::Config& config);
// Throws ConfigError if the weights that a run starts from lie in its own folder, which is about to
// be deleted.
void ProtectFirstWeights(const config::Config& config);

}  // namespace ada::train
