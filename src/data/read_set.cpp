// Leads from a data set's name to its reader: sets with known files are read into memory here, by
// the tasks of their FileLayout, all others are opened by a reader in a folder of its own.
#include <cstdio>
#include <filesystem>
#include <functional>
#include <utility>

#include "data/dataset.h"
#include "data/names.h"
#include "data/readers.h"
#include "error.h"
#include "io/data_files.h"
#include "io/run_in_parallel.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMaxListBytes = 1 << 16;

// What reads one split into `into`; all that is named here outlives the tasks.
void AddTasks(const SplitFiles& files, Dataset* into, std::vector<std::function<void()>>* tasks) {
  const DatasetFacts& facts = files.facts;
  into->name = facts.name;
  into->height = facts.height;
  into->width = facts.width;
  into->channels = facts.channels;
  into->classes = facts.classes;
  facts.layout->add_tasks(files, into, tasks);
}

// The text of a published set: `path` itself, or the file of its name in that folder.
std::string PublishedText(const DatasetFacts& facts, const std::string& path) {
  const std::string name(facts.train_files.front());
  const std::string file =
      IsDataFolder(path) ? (std::filesystem::path(path) / name).string() : path;
  if (IsThere(file)) return file;
  throw DataError(file + ": no such file; " + FetchAdvice(facts, path));
}

// Chooses the reader of the user's own files. For a published text `path` is a folder or the file
// itself; for files of tokens and tensors it depends on the task what they hold.
Splits Open(const DatasetFacts& facts, const std::string& path, const FileChoices& choices) {
  const Origin origin = facts.origin;
  std::vector<std::string> paths = {path};
  paths.insert(paths.end(), choices.more_paths.begin(), choices.more_paths.end());
  if (origin == Origin::kText && !facts.train_files.empty()) paths = {PublishedText(facts, path)};
  if (origin == Origin::kText) return OpenText(paths, choices);
  if (origin == Origin::kTokens) return OpenTokens(paths, choices);
  if (choices.language) return OpenTokenTensors(path, choices);
  if (origin == Origin::kFolder) return OpenFolder(path, choices);
  if (origin == Origin::kLabelImages) return OpenCamvid(path, choices);
  if (origin == Origin::kBoxes) return OpenVoc(path, choices);
  return OpenTensors(path, choices.layout);
}

// The user's own files.
Splits Find(const DatasetFacts& facts, const std::string& path, const FileChoices& choices) {
  ADA_CHECK(facts.has_path());
  Splits splits = Open(facts, path, choices);
  for (Dataset* split : {&splits.train, &splits.validation, &splits.test}) split->name = facts.name;
  splits.mean = facts.mean;
  splits.std = facts.std;
  return splits;
}

// What `normalize: standard` is of a set that is not published.
std::string StandardText(const DatasetFacts& facts) {
  if (!facts.mean.empty()) return "ImageNet's " + NormalizationText(facts);
  return facts.origin == Origin::kTensors ? "none" : "measured on them";
}

DatasetInfo InfoOf(Splits splits) {
  const Dataset& train = splits.train;
  DatasetInfo info{train.height, train.width, train.channels, train.classes};
  info.train = train.images();
  info.test = splits.test.images();
  info.validation = splits.validation.images();
  // Images that are unpacked or decoded into memory as a whole (tensors) are counted per image,
  // since the caller may keep only some of them.
  if (train.store) {
    std::uint64_t bytes = train.store->memory() + splits.test.store->memory();
    if (splits.validation.store) bytes += splits.validation.store->memory();
    info.in_memory = static_cast<std::int64_t>(bytes) / (info.train + info.test + info.validation);
  }
  info.found = std::make_shared<Splits>(std::move(splits));
  return info;
}

}  // namespace

void AddNote(std::string* note, const std::string& what) {
  if (!note->empty()) *note += "; ";
  *note += what;
}

std::string WithoutLastSlash(const std::string& path) {
  return path.size() > 1 && path.ends_with('/') ? path.substr(0, path.size() - 1) : path;
}

Splits Read(const std::string& name, const std::string& folder, const FileChoices& choices) {
  const DatasetFacts& facts = FactsOf(name);
  if (!facts.layout) return Find(facts, folder, choices);
  const std::string advice = FetchAdvice(facts, folder);
  const std::string inside = FindFolder(facts, folder);
  Splits splits;
  std::vector<std::function<void()>> tasks;
  // The files of both splits are read in parallel; where several fail, the error of the first task
  // is thrown, whichever ended first.
  AddTasks({facts, inside, facts.test_files, facts.test, advice}, &splits.test, &tasks);
  AddTasks({facts, inside, facts.train_files, facts.train, advice}, &splits.train, &tasks);
  RunInParallel(tasks);
  splits.mean = facts.mean;
  splits.std = facts.std;
  return splits;
}

DatasetInfo Inspect(const std::string& name, const std::string& folder,
                    const FileChoices& choices) {
  const DatasetFacts& facts = FactsOf(name);
  if (!facts.layout) return InfoOf(Find(facts, folder, choices));
  const std::string advice = FetchAdvice(facts, folder);
  const std::string inside = FindFolder(facts, folder);
  DatasetInfo info{facts.height, facts.width, facts.channels, facts.classes};
  info.in_memory = facts.per_image() + static_cast<std::int64_t>(sizeof(Label));
  info.test = facts.layout->count({facts, inside, facts.test_files, facts.test, advice});
  info.train = facts.layout->count({facts, inside, facts.train_files, facts.train, advice});
  return info;
}

std::vector<std::string> ClassNames(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  if (!facts.class_names.empty()) return {facts.class_names.begin(), facts.class_names.end()};
  // The names of these sets are in the files themselves, which have to be opened for them.
  if (facts.origin == Origin::kFolder || facts.origin == Origin::kTensors)
    return Find(facts, folder, {}).class_names;
  if (!facts.layout) return {};
  const std::filesystem::path inside = FindFolder(facts, folder);
  const std::string path = (inside / facts.names_file).string();
  std::error_code error;  // what cannot be looked at cannot be read either, and is told there
  const bool none = !std::filesystem::exists(path, error) && !error;
  if (facts.names_file.empty() || none) return {};
  std::vector<std::string> names;
  for (NameInFile& name : ReadNamesFile(path, kMaxListBytes, NamePart::kWholeLine))
    names.push_back(std::move(name.name));
  if (names.size() != static_cast<std::size_t>(facts.classes))
    throw DataError(path + ": " + std::to_string(names.size()) + " names of classes; expected " +
                    std::to_string(facts.classes) +
                    ", one a line; mend or remove the file, it is only read for names");
  return names;
}

std::vector<std::string> ListDatasets() {
  std::vector<std::string> lines;
  char text[400];
  for (const DatasetFacts& facts : Catalog()) {
    if (facts.origin == Origin::kOtherProgram) continue;  // nothing to train on
    // Each kind of set has a line of its own: tokens have no shape, and files of the user say
    // theirs.
    if (facts.has_tokens()) {
      std::snprintf(text, sizeof text, "%-14s %s%s%s", facts.name.data(), facts.title.data(),
                    facts.source.empty() ? "" : "  ", std::string(facts.source).c_str());
      lines.emplace_back(text);
      continue;
    }
    if (!facts.layout) {
      std::snprintf(text, sizeof text, "%-14s %s; normalize: standard is %s", facts.name.data(),
                    facts.title.data(), StandardText(facts).c_str());
      lines.emplace_back(text);
      continue;
    }
    std::snprintf(
        text, sizeof text,
        "%-14s %2dx%dx%d  %3d classes  %lld + %lld images  %s  %s  normalize: standard is "
        "%s",
        std::string(facts.name).c_str(), facts.height, facts.width, facts.channels, facts.classes,
        static_cast<long long>(facts.train), static_cast<long long>(facts.test),
        std::string(facts.title).c_str(), std::string(facts.source).c_str(),
        NormalizationText(facts).c_str());
    lines.emplace_back(text);
  }
  return lines;
}

}  // namespace ada::data
