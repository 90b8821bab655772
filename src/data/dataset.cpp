#include "data/dataset.h"

#include <cstdio>
#include <filesystem>
#include <functional>
#include <sstream>

#include "core/error.h"
#include "core/file.h"
#include "core/run_in_parallel.h"

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

// One name a line; empty lines (the published list ends with one) are none.
std::vector<std::string> ReadNames(const std::string& path) {
  std::istringstream text(ReadFile(path, kMaxListBytes));
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

}  // namespace

Splits Read(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  ADA_CHECK(facts.layout != nullptr);
  const std::string advice = FetchAdvice(facts, folder);
  const std::string inside = FindFolder(facts, folder);
  Splits splits;
  std::vector<std::function<void()>> tasks;
  AddTasks({facts, inside, facts.test_files, facts.test, advice}, &splits.test, &tasks);
  AddTasks({facts, inside, facts.train_files, facts.train, advice}, &splits.train, &tasks);
  RunInParallel(tasks);
  splits.mean = facts.mean;
  splits.std = facts.std;
  return splits;
}

DatasetInfo Inspect(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  ADA_CHECK(facts.layout != nullptr);
  const std::string advice = FetchAdvice(facts, folder);
  const std::string inside = FindFolder(facts, folder);
  DatasetInfo info{facts.height, facts.width, facts.channels, facts.classes, 0, 0};
  info.test = facts.layout->count({facts, inside, facts.test_files, facts.test, advice});
  info.train = facts.layout->count({facts, inside, facts.train_files, facts.train, advice});
  return info;
}

std::vector<std::string> ClassNames(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  if (!facts.class_names.empty()) return {facts.class_names.begin(), facts.class_names.end()};
  if (!facts.layout) return {};
  const std::filesystem::path inside = FindFolder(facts, folder);
  const std::string path = (inside / facts.names_file).string();
  std::error_code error;  // what cannot be looked at cannot be read either, and is told there
  const bool none = !std::filesystem::exists(path, error) && !error;
  if (facts.names_file.empty() || none) return {};
  std::vector<std::string> names = ReadNames(path);
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
    if (facts.foreign) continue;  // nothing to train on
    if (!facts.layout) {
      std::snprintf(text, sizeof text, "%-14s %s; normalize: standard is measured on them",
                    facts.name.data(), facts.title.data());
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
