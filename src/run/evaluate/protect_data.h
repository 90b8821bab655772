// Checks, before a command writes files, that these will not overwrite files of others.
#pragma once
#include <string>
#include <vector>

#include "run/assemble/assemble.h"

namespace ada::run {

// `folder` gets predictions: PNG files named like their pictures in it (detection: detections.csv),
// and in folders inside it, `overlays` among them. Throws ConfigError if it holds pictures or label
// images of the data set, or files of the names that are written which no command of this program
// wrote there.
void ProtectPicturesOfData(const std::string& folder, Task task, const RunData& data);
// The same checks for single photos, of which two may not be written as one file, and of the
// folders of the data set that the network was trained with, which is not read.
void ProtectPhotos(const std::string& folder, const config::Config& config,
                   const std::vector<std::string>& photos);
// Throws ConfigError where `path` is one of the data set's pictures or label images.
void ProtectFileOfData(const std::string& path, const RunData& data);

// Throws ConfigError if the run's folder is the data set's, or lies in the folder of a split or
// among class folders.
void ProtectFoldersOfData(const config::Config& config);
// Throws ConfigError if the weights that a run starts from lie in its own folder, which is about to
// be deleted.
void ProtectFirstWeights(const config::Config& config);

}  // namespace ada::run
