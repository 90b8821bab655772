// Files of data sets, of a size that a fuzzer can fill: two images of 2 x 3 pixels.
#include <unistd.h>

#include <functional>
#include <vector>

#include "data/dataset.h"
#include "fuzz/scratch.h"
#include "fuzz/targets.h"

namespace ada::fuzz {
namespace {

constexpr std::int64_t kImages = 2;

data::DatasetFacts SmallFacts(const char* like, int channels, data::FileNames files) {
  data::DatasetFacts facts = data::FactsOf(like);
  facts.height = 2;
  facts.width = 3;
  facts.channels = channels;
  facts.train = facts.test = kImages;
  facts.train_files = facts.test_files = std::move(files);
  return facts;
}

void ReadSplit(const data::DatasetFacts& facts, const std::string& folder) {
  const std::string advice = "no advice";
  const data::SplitFiles split{facts, folder, facts.train_files, kImages, advice};
  Refusable([&] { facts.layout->count(split); });
  Refusable([&] {
    data::Dataset set;
    set.height = facts.height;
    set.width = facts.width;
    set.channels = facts.channels;
    set.classes = facts.classes;
    if (!facts.layout->packs) {  // such a layout's reader finds room for the published images
      set.labels.resize(kImages);
      set.pixels.resize(static_cast<std::size_t>(kImages * facts.per_image()));
    }
    std::vector<std::function<void()>> tasks;
    facts.layout->add_tasks(split, &set, &tasks);
    for (const auto& task : tasks) task();
    for (const data::Label label : set.labels)
      Demand(label < facts.classes, "a label that the data set has no class for");
    Demand(set.pixels.size() == set.labels.size() * static_cast<std::size_t>(facts.per_image()),
           "images and labels do not belong together");
  });
}

}  // namespace

// The first byte says how many bytes are the labels' file, and whether files are packed.
void Idx(std::string_view input) {
  static const Scratch scratch;
  static const data::DatasetFacts facts = SmallFacts("mnist", 1, {"images", "labels"});
  const unsigned choice = TakeByte(&input);
  const std::size_t labels = std::min<std::size_t>(choice & 127, input.size());
  const bool packed = choice >= 128;
  for (const char* name : {"images", "labels", "images.gz", "labels.gz"})
    unlink((scratch.path() + "/" + name).c_str());
  scratch.Write(packed ? "labels.gz" : "labels", input.substr(0, labels));
  scratch.Write(packed ? "images.gz" : "images", input.substr(labels));
  ReadSplit(facts, scratch.path());
}

void Cifar(std::string_view input) {
  static const Scratch scratch;
  static const data::DatasetFacts ten = SmallFacts("cifar10", 3, {"batch"});
  static const data::DatasetFacts hundred = SmallFacts("cifar100", 3, {"batch"});
  const bool coarse = TakeByte(&input) % 2 == 1;
  scratch.Write("batch", input);
  ReadSplit(coarse ? hundred : ten, scratch.path());
}

}  // namespace ada::fuzz
