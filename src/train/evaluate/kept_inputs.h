// Pictures that a command reads are not written over by what it writes: looked at before it does.
#pragma once
#include <string>
#include <vector>

#include "train/assemble/assemble.h"

namespace ada::train {

// Predictions are PNG files called like their pictures, in `folder` (but those of detection) and in
// folders below it. Throws ConfigError where one of these holds pictures or label images of the
// data set.
void KeepPicturesOfData(const std::string& folder, Task task, const RunData& data);
// The same for single photos; also where two of them would become one file.
void KeepPhotos(const std::string& folder, Task task, const std::vector<std::string>& photos);
// Throws ConfigError where `path` is one of the data set's pictures or label images.
void KeepFileOfData(const std::string& path, const RunData& data);

// Throws ConfigError where the run's folder is the data set's, or lies where class folders do.
void KeepFoldersOfData(const config::Config& config);

}  // namespace ada::train
