// Paths are compared in their canonical form, so that links, relative paths and a final slash do
// not hide that two of them are the same file.
#include "run/evaluate/protect_data.h"

#include <filesystem>
#include <functional>
#include <map>
#include <set>

#include "config/load.h"
#include "data/names.h"
#include "error.h"
#include "io/data_files.h"
#include "io/file.h"
#include "run/metrics/prediction.h"

namespace ada::run {
namespace {

namespace fs = std::filesystem;

// Without a slash at its end.
fs::path Canonical(const fs::path& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error), error);
  return whole.has_filename() ? whole : whole.parent_path();
}

// The folder itself included.
bool IsWithin(const fs::path& path, const fs::path& folder) {
  const fs::path root = Canonical(folder);
  for (fs::path at = Canonical(path); at.has_relative_path(); at = at.parent_path())
    if (at == root) return true;
  return false;
}

// Calls `look` with each file that holds an image or its labels, as the data set names it.
void ForEachFile(const RunData& data, const std::function<void(const std::string&)>& look) {
  for (const data::Dataset* split : {&data.train, &data.validation, &data.test}) {
    if (!split->store) continue;
    for (std::int64_t i = 0; i < split->images(); ++i) {
      look(split->store->NameOf(split->NumberInFiles(i)));
      if (split->label_images) look(split->label_images->NameOf(split->NumberInFiles(i)));
    }
  }
}

// Folders of predictions are made with one of this name, which tells them from those of others.
bool IsOwn(const fs::path& folder) { return IsFolder((folder / "overlays").string()); }

// The folders that label images are written to, or boxes.
std::vector<fs::path> FoldersOf(const std::string& folder) {
  return {folder, fs::path(folder) / "validation"};
}

// `file` would be written.
void RefuseToReplace(const std::string& folder, const fs::path& file) {
  if (!IsThere(file.string()) || IsOwn(file.parent_path())) return;
  throw ConfigError("--predictions " + folder + ": " + file.string() +
                    " would be written over, and no predictions were written there before; "
                    "expected another folder");
}

// What one picture becomes, beside its overlay.
fs::path FileOf(Task task, const std::string& title) {
  return task == Task::kDetection ? "detections.csv" : title + ".png";
}

// A data set that is not opened does not tell which files are its own, but a folder with files and
// without overlays is none of predictions.
void ProtectUnopenedData(const std::string& folder, const config::Config& config) {
  std::vector<std::string> paths = config.data.more_paths;
  if (!config.data.path.empty()) paths.push_back(config.data.path);
  if (IsOwn(folder) || !IsFolder(folder) || ListFolder(folder).empty()) return;
  for (const std::string& path : paths)
    if (IsFolder(path) && IsWithin(folder, path))
      throw ConfigError("--predictions " + folder + ": holds files of the data set (data.path " +
                        path + "), which could be written over; expected another folder");
}

}  // namespace

// Folders are compared, not files: there are far fewer of them, and what will be written is known
// only by its folder.
void ProtectPicturesOfData(const std::string& folder, Task task, const RunData& data) {
  std::set<fs::path> named, read;
  ForEachFile(data, [&](const std::string& file) { named.insert(fs::path(file).parent_path()); });
  for (const fs::path& pictures : named) read.insert(Canonical(pictures));
  std::vector<fs::path> written;
  for (const char* split : {"", "validation"}) {
    const fs::path of_split = split[0] == 0 ? fs::path(folder) : fs::path(folder) / split;
    written.push_back(of_split / "overlays");
    if (task == Task::kSegmentation) written.push_back(of_split);
  }
  for (const fs::path& pictures : written)
    if (read.contains(Canonical(pictures)))
      throw ConfigError("--predictions " + folder + ": " + pictures.string() +
                        " holds the data set's own files, which could be written over; expected "
                        "another folder");
  for (const data::Dataset* split : {&data.validation, &data.test}) {
    const fs::path to = FoldersOf(folder)[split == &data.validation ? 1 : 0];
    if (!split->store || !IsThere(to.string()) || IsOwn(to)) continue;
    for (std::int64_t i = 0; i < split->images(); ++i)
      RefuseToReplace(folder, to / FileOf(task, split->store->TitleOf(split->NumberInFiles(i))));
  }
}

void ProtectPhotos(const std::string& folder, const config::Config& config,
                   const std::vector<std::string>& photos) {
  const Task task = config.task;
  const std::string refused = "--predictions " + folder + ": ";
  std::map<std::string, std::string> photo_of;
  std::set<fs::path> written;
  for (const std::string& photo : photos) {
    const std::string name = TitleOfFile(photo) + ".png";
    const auto [other, is_new] = photo_of.emplace(name, photo);
    if (!is_new)
      throw ConfigError(refused + other->second + " and " + photo + " would both become " + name +
                        "; expected photos of different names, or one after the other");
    written.insert(Canonical(fs::path(folder) / "overlays" / name));
    if (task == Task::kSegmentation) written.insert(Canonical(fs::path(folder) / name));
  }
  for (const std::string& photo : photos)
    if (written.contains(Canonical(photo)))
      throw ConfigError(refused + "the photo " + photo +
                        " would be written over; expected another folder");
  ProtectUnopenedData(folder, config);
  for (const std::string& photo : photos)
    RefuseToReplace(folder, fs::path(folder) / FileOf(task, TitleOfFile(photo)));
}

// The end of the name is compared first, because a canonical path costs system calls for every
// file.
void ProtectFileOfData(const std::string& path, const RunData& data) {
  const std::string name = fs::path(path).filename().string();
  const fs::path written = Canonical(path);
  ForEachFile(data, [&](const std::string& file) {
    if (file.ends_with(name) && Canonical(file) == written)
      throw ConfigError("--preview " + path +
                        ": is a file of the data set; expected another place");
  });
}

// Class folders are found by listing: a run's folder among them would be a class of the next run.
// A set without a folder `train` has its class folders at its path.
void ProtectFoldersOfData(const config::Config& config) {
  const data::DatasetFacts& facts = data::FactsOf(config.data.dataset);
  if (!facts.has_path()) return;
  std::vector<std::string> paths = config.data.more_paths;
  paths.push_back(config.data.path);
  const auto refuse = [&](const std::string& path) {
    throw ConfigError(config::KeyText(config, "output") + ": " + config.output +
                      ": the run's folder lies among the files of the data set (" + path +
                      "); expected another folder");
  };
  std::vector<std::string> splits = data::ValidationNames();
  splits.insert(splits.end(), {"train", "test"});
  for (const std::string& path : paths) {
    if (Canonical(path) == Canonical(config.output)) refuse(path);
    if (facts.origin != data::Origin::kFolder) continue;
    if (!IsFolder(path + "/train") && IsWithin(config.output, path)) refuse(path);
    for (const std::string& split : splits)
      if (IsWithin(config.output, fs::path(path) / split)) refuse(path);
  }
}

void ProtectFirstWeights(const config::Config& config) {
  const std::string& weights = config.model.init.weights;
  if (!weights.empty() && IsWithin(weights, config.output + "/checkpoints"))
    throw ConfigError("--overwrite would delete " + weights +
                      ", which this run starts from (model.init.weights); expected another "
                      "--output, or a copy of the file");
}

}  // namespace ada::run
