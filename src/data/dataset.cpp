#include "data/dataset.h"

#include <cstdio>
#include <filesystem>
#include <functional>

#include "core/error.h"
#include "core/run_in_parallel.h"
#include "data/catalog.h"
#include "data/cifar.h"
#include "data/idx.h"

namespace ada::data {
namespace {

std::string PathOf(const std::string& folder, std::string_view name) {
  return (std::filesystem::path(folder) / name).string();
}

using Tasks = std::vector<std::function<void()>>;

// One split of CIFAR files, which have no header: `images` is the published count.
void AddCifarTasks(const DatasetFacts& facts, const std::string& folder, const FileNames& files,
                   std::int64_t images, const std::string& advice, Dataset* into, Tasks* tasks) {
  const std::int64_t each = images / static_cast<std::int64_t>(files.size());
  for (const std::string_view file : files) {
    CheckCifarFile(facts, PathOf(folder, file), each, advice);
  }
  into->labels.resize(static_cast<std::size_t>(images));
  into->pixels.resize(static_cast<std::size_t>(images * facts.per_image()));
  for (std::size_t i = 0; i < files.size(); ++i) {
    tasks->push_back([&facts, &advice, path = PathOf(folder, files[i]), each,
                      first = static_cast<std::int64_t>(i) * each,
                      into] { ReadCifarFile(facts, path, each, advice, first, into); });
  }
}

// What reads one split into `into`; all that is named here outlives the tasks.
void AddTasks(const DatasetFacts& facts, const std::string& folder, const FileNames& files,
              std::int64_t images, const std::string& advice, Dataset* into, Tasks* tasks) {
  into->name = facts.name;
  into->height = facts.height;
  into->width = facts.width;
  into->channels = facts.channels;
  into->classes = facts.classes;
  if (facts.layout == FileLayout::kCifar) {
    return AddCifarTasks(facts, folder, files, images, advice, into, tasks);
  }
  tasks->push_back([&facts, &folder, &files, &advice, into] {
    ReadIdx(facts, FindIdxFile(folder, files[0]), FindIdxFile(folder, files[1]), advice, into);
  });
}

std::int64_t InspectSplit(const DatasetFacts& facts, const std::string& folder,
                          const FileNames& files, std::int64_t images, const std::string& advice) {
  if (facts.layout == FileLayout::kIdx) {
    return InspectIdx(facts, FindIdxFile(folder, files[0]), FindIdxFile(folder, files[1]), advice);
  }
  for (const std::string_view file : files) {
    CheckCifarFile(facts, PathOf(folder, file), images / static_cast<std::int64_t>(files.size()),
                   advice);
  }
  return images;
}

}  // namespace

Splits Read(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  const std::string advice = FetchAdvice(facts, folder);
  const std::string inside = FindFolder(facts, folder);
  Splits splits;
  Tasks tasks;
  AddTasks(facts, inside, facts.test_files, facts.test, advice, &splits.test, &tasks);
  AddTasks(facts, inside, facts.train_files, facts.train, advice, &splits.train, &tasks);
  RunInParallel(tasks);
  splits.mean = facts.mean;
  splits.std = facts.std;
  return splits;
}

DatasetInfo Inspect(const std::string& name, const std::string& folder) {
  const DatasetFacts& facts = FactsOf(name);
  const std::string advice = FetchAdvice(facts, folder);
  const std::string inside = FindFolder(facts, folder);
  DatasetInfo info{facts.height, facts.width, facts.channels, facts.classes, 0, 0};
  info.test = InspectSplit(facts, inside, facts.test_files, facts.test, advice);
  info.train = InspectSplit(facts, inside, facts.train_files, facts.train, advice);
  return info;
}

void Limit(Dataset& dataset, std::int64_t count) {
  ADA_CHECK(count >= 0);
  if (count == 0 || count >= dataset.images()) return;
  const std::int64_t size = std::int64_t{dataset.height} * dataset.width * dataset.channels;
  dataset.labels.resize(static_cast<std::size_t>(count));
  dataset.pixels.resize(static_cast<std::size_t>(count * size));
}

Dataset SplitLast(Dataset& dataset, std::int64_t count) {
  ADA_CHECK(count >= 0);
  if (count >= dataset.images()) {
    throw ConfigError("data.validation: holds back " + std::to_string(count) + " of " +
                      std::to_string(dataset.images()) +
                      " training images; expected fewer, so that some are left to train on");
  }
  const std::int64_t size = std::int64_t{dataset.height} * dataset.width * dataset.channels;
  const std::int64_t kept = dataset.images() - count;
  Dataset last = {
      dataset.name, dataset.height, dataset.width, dataset.channels, dataset.classes, {}, {}};
  last.labels.assign(dataset.labels.begin() + kept, dataset.labels.end());
  last.pixels.assign(dataset.pixels.begin() + kept * size, dataset.pixels.end());
  if (count > 0) Limit(dataset, kept);
  return last;
}

std::vector<std::string> ListDatasets() {
  std::vector<std::string> lines;
  char text[200];
  for (const DatasetFacts& facts : Catalog()) {
    std::snprintf(text, sizeof text, "%-14s %2dx%dx%d  %3d classes  %lld + %lld images  %s  %s",
                  std::string(facts.name).c_str(), facts.height, facts.width, facts.channels,
                  facts.classes, static_cast<long long>(facts.train),
                  static_cast<long long>(facts.test), std::string(facts.title).c_str(),
                  std::string(facts.source).c_str());
    lines.emplace_back(text);
  }
  lines.emplace_back(
      "synthetic      any shape, classes and counts; made from the seed, no files, learnable");
  return lines;
}

}  // namespace ada::data
