// A file is known by its name with the folder that it lies in, and by its size: a data set may be
// moved, and its files are not read. Classes are called what the data or the user calls them.
#include "run/facts/data_facts.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <utility>

#include "data/dataset.h"
#include "error.h"
#include "io/data_files.h"
#include "io/hash.h"
#include "io/run_in_parallel.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::run {
namespace {

constexpr std::size_t kNamedClasses = 8;  // of each list, in a message

// Names as a checkpoint of any version may hold them.
std::vector<std::string> Comparable(const std::vector<std::string>& names) {
  std::vector<std::string> shown;
  for (const std::string& name : names) shown.push_back(Visible(name));
  return shown;
}

std::string NamedClass(const std::vector<std::string>& names, std::size_t label) {
  return label < names.size() ? names[label] : "none";
}

// Advice on how to name the classes.
std::string AdviceOn(const config::Config& config) {
  switch (data::FactsOf(config.data.dataset).origin) {
    case data::Origin::kFolder:
      return "give the class folders the names of the checkpoint";
    case data::Origin::kLabelImages:
    case data::Origin::kBoxes:
      return "name them in data.class_names as the checkpoint has them";
    case data::Origin::kTensors:
      return "name them in the file's metadata as the checkpoint has them";
    default:
      return "put the names of the checkpoint back";
  }
}

}  // namespace

std::vector<std::string> NamesOfClasses(const config::Config& config,
                                        const data::DatasetInfo& info) {
  if (info.found) return info.found->class_names;
  if (!data::FactsOf(config.data.dataset).layout) return {};
  try {
    return data::ClassNames(config.data.dataset, config.data.path);
  } catch (const DataError&) {  // a damaged list of names: a run goes without, and says so itself
    return {};
  }
}

// A list that is longer, shorter or in another order is refused at the first label that differs.
void RequireSameClasses(const std::string& path, const std::optional<InputFacts>& known,
                        const config::Config& config, const data::DatasetInfo& info) {
  if (!known) return;
  const std::vector<std::string> then = Comparable(known->class_names);
  const std::vector<std::string> now = Comparable(NamesOfClasses(config, info));
  if (then.empty() || now.empty() || then == now) return;
  const auto [one, other] = std::mismatch(then.begin(), then.end(), now.begin(), now.end());
  const auto label = static_cast<std::size_t>(one - then.begin());
  throw DataError(
      path + ": the network was trained with the classes " + FirstNames(then, kNamedClasses) +
      ", and the data (" + config.data.path + ") have " + FirstNames(now, kNamedClasses) +
      ": class " + std::to_string(label) + " is " + NamedClass(then, label) + " there and " +
      NamedClass(now, label) +
      " here, so labels mean other classes; expected the same names in the same order: " +
      AdviceOn(config));
}

std::string ClassName(const std::vector<std::string>& names, int label) {
  const auto k = static_cast<std::size_t>(label);
  return k < names.size() && !names[k].empty() ? names[k] : std::to_string(label);
}

namespace {

// Files that one task looks up: asking for sizes waits for the disk, so many tasks do it at once.
constexpr std::int64_t kFilesOfTask = 256;

// Counts by class, if each sample, or each box, has a label.
std::vector<std::int64_t> CountByClass(const data::Dataset& split) {
  if (split.label_images || split.tokens) return {};
  std::vector<std::int64_t> counts(static_cast<std::size_t>(split.classes));
  const auto add = [&](int label) {
    if (static_cast<std::size_t>(label) < counts.size()) ++counts[static_cast<std::size_t>(label)];
  };
  if (!split.objects) {
    for (const data::Label label : split.labels) add(label);
    return counts;
  }
  for (const data::ImageObjects& image : *split.objects)
    for (const vision::LabeledBox& box : image.boxes) add(box.label);
  return counts;
}

// A text is followed by its length, so that two lists of names which differ only in where one name
// ends have different hashes.
class FactsHasher {
 public:
  void Add(std::string_view text) {
    hasher_.Update(std::as_bytes(std::span(text)));
    Number(text.size());
  }
  template <class T>
  void Number(T value) {
    hasher_.Update(std::as_bytes(std::span(&value, 1)));
  }
  void Bytes(std::span<const std::byte> bytes) { hasher_.Update(bytes); }
  std::string Hex() const { return hasher_.Hex(); }

 private:
  Hasher hasher_;
};

// "ant/1.png" of "photos/train/ant/1.png".
std::string_view LastParts(std::string_view path) {
  const std::size_t name = path.rfind('/');
  const std::size_t folder =
      name == std::string_view::npos || name == 0 ? name : path.rfind('/', name - 1);
  return folder == std::string_view::npos ? path : path.substr(folder + 1);
}

struct FoundFile {
  std::string name;
  std::uint64_t bytes = 0;
};

// Sizes are found in parallel and hashed in order, so that the hash does not depend on the threads.
void HashFiles(const data::Dataset& split, FactsHasher* hasher) {
  std::vector<FoundFile> files(static_cast<std::size_t>(split.images()) *
                               (split.label_images ? 2 : 1));
  const auto name_of = [&](std::int64_t i) {
    const std::int64_t image = split.NumberInFiles(i % split.images());
    return i < split.images() ? split.store->NameOf(image) : split.label_images->NameOf(image);
  };
  RunRangesInParallel(
      static_cast<std::int64_t>(files.size()), kFilesOfTask,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::string path = name_of(i);
          files[static_cast<std::size_t>(i)] = {std::string(LastParts(path)), BytesOfFile(path)};
        }
      });
  for (const FoundFile& file : files) {
    hasher->Add(file.name);
    hasher->Number(file.bytes);
  }
}

void HashBoxes(const data::Dataset& split, FactsHasher* hasher) {
  for (const data::ImageObjects& image : *split.objects) {
    hasher->Add(image.name);
    for (const vision::LabeledBox& of : image.boxes) {
      for (const float side : {of.box.y0, of.box.x0, of.box.y1, of.box.x1}) hasher->Number(side);
      hasher->Number(of.label);
      hasher->Number(of.difficult);
    }
  }
}

void HashTokens(const data::TokenSet& tokens, FactsHasher* hasher) {
  for (const std::string& path : tokens.files()) {
    hasher->Add(LastParts(path));
    hasher->Number(BytesOfFile(path));
  }
  const std::vector<std::int32_t> sample = data::SampleOf(tokens);
  hasher->Bytes(std::as_bytes(std::span(sample)));
}

// The pixels of tensors are not looked at: reading them all would take as long as an epoch.
void HashSplit(const data::Dataset& split, FactsHasher* hasher) {
  for (const int size : {split.height, split.width, split.channels, split.classes})
    hasher->Number(size);
  hasher->Number(split.images());
  hasher->Bytes(std::as_bytes(std::span(split.labels)));
  hasher->Bytes(std::as_bytes(std::span(split.pixels.data(), split.pixels.size())));
  if (split.store && data::FactsOf(split.name).decodes()) HashFiles(split, hasher);
  if (split.objects) HashBoxes(split, hasher);
  if (split.tokens) HashTokens(*split.tokens, hasher);
}

nlohmann::ordered_json JsonOfSplit(const DataFacts::Split& split) {
  nlohmann::ordered_json json;
  json["images"] = split.images;
  json["by_class"] = split.by_class;
  return json;
}

DataFacts::Split SplitFrom(const JsonFields& fields) {
  DataFacts::Split split;
  split.images = fields.Count("images");
  for (const double count : fields.Numbers("by_class")) {
    const bool whole = count >= 0 && count <= static_cast<double>(JsonFields::kLargestCount) &&
                       count == std::floor(count);
    if (!whole) fields.Fail("by_class", "whole numbers from 0");
    split.by_class.push_back(static_cast<std::int64_t>(count));
  }
  return split;
}

// "split train has 12 samples, and had 14 (ant: 3, before 5)"; "" where nothing changed.
std::string SplitText(const std::string& name, const DataFacts::Split& then,
                      const DataFacts::Split& now, const std::vector<std::string>& names) {
  constexpr std::size_t kNamed = 3;
  if (then == now) return "";
  std::string text = "split " + name + " has " + Counted(now.images, "sample");
  if (then.images != now.images) text += ", and had " + std::to_string(then.images);
  std::size_t others = 0;
  for (std::size_t k = 0; k < std::min(then.by_class.size(), now.by_class.size()); ++k) {
    if (then.by_class[k] == now.by_class[k] || ++others > kNamed) continue;
    const std::string shown = k < names.size() ? Visible(names[k]) : "class " + std::to_string(k);
    text += (others == 1 ? " (" : ", ") + shown + ": " + std::to_string(now.by_class[k]) +
            ", before " + std::to_string(then.by_class[k]);
  }
  if (others > kNamed) text += " and " + std::to_string(others - kNamed) + " classes more";
  return text + (others > 0 ? ")" : "");
}

}  // namespace

DataFacts DataFactsOf(const data::Dataset& train, const data::Dataset& test,
                      const data::Dataset& validation) {
  FactsHasher hasher;
  HashSplit(train, &hasher);
  HashSplit(test, &hasher);
  if (validation.images() > 0) HashSplit(validation, &hasher);
  return {{train.images(), CountByClass(train)}, {test.images(), CountByClass(test)}, hasher.Hex()};
}

// Sets of arrays lie in few files, at a path or in its folder; those of pictures name each file.
std::string TimesOfFiles(const std::vector<std::string>& paths,
                         const std::vector<const data::Dataset*>& splits) {
  FactsHasher hasher;
  const auto add = [&](const std::string& path) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) return;
    hasher.Add(path);
    hasher.Number(status.st_size);
    hasher.Number(status.st_mtim.tv_sec);
    hasher.Number(status.st_mtim.tv_nsec);
  };
  for (const std::string& path : paths) {
    add(path);
    if (!IsDataFolder(path)) continue;
    std::vector<std::string> names = ListDataFolder(path);
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) add(path + "/" + name);
  }
  for (const data::Dataset* split : splits) {
    if (split->tokens)
      for (const std::string& file : split->tokens->files()) add(file);
    if (!split->store || !data::FactsOf(split->name).decodes()) continue;
    for (std::int64_t i = 0; i < split->images(); ++i) {
      add(split->store->NameOf(split->NumberInFiles(i)));
      if (split->label_images) add(split->label_images->NameOf(split->NumberInFiles(i)));
    }
  }
  return hasher.Hex();
}

nlohmann::ordered_json JsonOf(const DataFacts& facts) {
  nlohmann::ordered_json json;
  json["train"] = JsonOfSplit(facts.train);
  json["test"] = JsonOfSplit(facts.test);
  json["files_xxh3"] = facts.hash;
  return json;
}

DataFacts DataFactsFrom(const JsonFields& fields) {
  return {SplitFrom(fields.Object("train")), SplitFrom(fields.Object("test")),
          fields.Text("files_xxh3")};
}

// Hashes decide whether anything changed; the counts only tell what.
std::string ChangesOfData(const DataFacts& then, const DataFacts& now,
                          const std::vector<std::string>& names) {
  if (then.hash == now.hash) return "";
  std::string text = SplitText("train", then.train, now.train, names);
  const std::string test = SplitText("test", then.test, now.test, names);
  if (!test.empty()) text += (text.empty() ? "" : "; ") + test;
  if (text.empty()) text = "there is as much of it, and files, labels, boxes or tokens are others";
  return "the data set is no longer what the checkpoint was made with: " + text;
}

// --- The input of a network ---

namespace {

// What a picture, and so a network's input, may be.
constexpr std::int64_t kLargestInputSide = 65'536, kMostInputChannels = 1024;

std::int64_t SizeFrom(const JsonFields& fields, const std::string& field, std::int64_t most) {
  const std::int64_t size = fields.Count(field);
  if (size < 1 || size > most) fields.Fail(field, "1 to " + std::to_string(most));
  return size;
}

}  // namespace

nlohmann::ordered_json JsonOf(const InputFacts& facts) {
  nlohmann::ordered_json json;
  json["height"] = facts.image.h;
  json["width"] = facts.image.w;
  json["channels"] = facts.image.c;
  json["mean"] = facts.mean;
  json["std"] = facts.std;
  json["class_names"] = nlohmann::ordered_json::array();
  for (const std::string& name : facts.class_names) json["class_names"].push_back(ValidUtf8(name));
  return json;
}

// A file may have been changed by hand: everything that later code relies on (a mean and a
// deviation for each channel or none, deviations above 0) is checked here.
InputFacts InputFactsFrom(const JsonFields& fields) {
  InputFacts facts;
  facts.image = {1, SizeFrom(fields, "height", kLargestInputSide),
                 SizeFrom(fields, "width", kLargestInputSide),
                 SizeFrom(fields, "channels", kMostInputChannels)};
  facts.mean = fields.Numbers("mean");
  facts.std = fields.Numbers("std");
  facts.class_names = fields.TextList("class_names");
  const auto channels = static_cast<std::size_t>(facts.image.c);
  for (const auto& [field, values] : {std::pair{"mean", &facts.mean}, {"std", &facts.std}})
    if (values->size() != facts.mean.size() || (!values->empty() && values->size() != channels))
      fields.Fail(field, "a number for each channel, or none");
  for (const double value : facts.std)
    if (!(value > 0) || !std::isfinite(value)) fields.Fail("std", "numbers above 0");
  if (facts.class_names.size() > static_cast<std::size_t>(data::kMostClasses))
    fields.Fail("class_names", "at most " + std::to_string(data::kMostClasses) + " names");
  return facts;
}

}  // namespace ada::run
