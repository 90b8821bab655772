// model.file: a network in a separate file, for example one written by tools/from_torch.py. The
// file's section is merged into the tree before anything is read, so that all later code sees a
// single `model:` section, whose nodes record which file they are from.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "config/sections/sections.h"
#include "config/yaml/document.h"
#include "error.h"
#include "io/data_files.h"

namespace ada::config {
namespace {

namespace fs = std::filesystem;

constexpr char kFile[] = "model.file";

void Mark(YamlNode& node) {
  node.source = kIncluded;
  for (YamlNode& item : node.items) Mark(item);
  for (Entry& entry : node.entries) {
    Mark(entry.key);
    Mark(entry.value);
  }
}

void Erase(YamlNode& map, const std::string& key) {
  std::erase_if(map.entries, [&](const Entry& entry) { return entry.key.text == key; });
}

// The key that names a network besides `file`; null: there is none. A number of layers does not.
const Entry* OtherNetwork(const YamlNode& model) {
  if (const Entry* zoo = model.FindEntry("zoo")) return zoo;
  const Entry* layers = model.FindEntry("layers");
  return layers && layers->value.kind == YamlNode::Kind::kList ? layers : nullptr;
}

// Where `file` and another network are given one may stay; says whether it is the file.
bool FileStays(YamlNode& model, Problems& problems, std::vector<std::string>& notes) {
  const Entry& file = *model.FindEntry("file");
  const Entry* other = OtherNetwork(model);
  if (!other) return true;
  const auto drop = [&](const Entry& dropped, const Entry& by) {
    notes.push_back(ToString(problems.Where(dropped.key)) + ": model." + dropped.key.text +
                    " dropped: " + ToString(problems.Where(by.key)) + " replaces it");
    Erase(model, std::string(dropped.key.text));
  };
  // Where both are from the file, or both from --set, nothing says which one is meant.
  if ((file.key.source > 0) == (other->key.source > 0)) {
    problems.Add(file.key, kFile, "give either file or " + other->key.text + ", not both");
    return false;
  }
  if (file.key.source > 0) {
    drop(*other, file);
    return true;
  }
  drop(file, *other);
  return false;
}

// The `model:` section of the file at `path`: the whole file, or the map under its `model:`.
YamlNode ReadModelFile(const std::string& path, const Entry& named, Problems& problems) {
  YamlNode root;
  const auto refuse = [&](const YamlNode& at, const std::string& key, const std::string& message) {
    problems.Add(at, key, message);
    return YamlNode();
  };
  problems.Include(problems.Where(named.value), path);
  try {
    root = ParseYaml(ReadTextFile(path), kIncluded);
  } catch (const ConfigError& error) {
    return refuse(named.value, kFile, error.what());
  } catch (const ParseProblem& problem) {
    YamlNode place;
    place.source = kIncluded;
    place.line = problem.line;
    place.column = problem.column;
    return refuse(place, "", problem.message);
  }
  Mark(root);
  if (root.kind != YamlNode::Kind::kMap) {
    root.line = std::max(root.line, 1);
    root.column = std::max(root.column, 1);
    return refuse(root, "", Expected("the section `model:`", root));
  }
  RemoveDuplicates(root, "model", problems);
  const YamlNode* section = root.Find("model");
  if (!section) return root;
  for (const Entry& entry : root.entries) {
    if (entry.key.text != "model")
      problems.Add(entry.key, entry.key.text,
                   "a file of model.file holds the section `model:` alone");
  }
  if (section->kind == YamlNode::Kind::kMap) return *section;
  return refuse(*section, "model", Expected("a map of keys and values", *section));
}

// Weights that are named from the working directory and are not there, but lie beside the file that
// names them, as after a folder was moved.
void FindWeights(YamlNode& section, const std::string& path, const Problems& problems,
                 std::vector<std::string>& notes) {
  YamlNode* init = section.FindEntry("init") ? &section.FindEntry("init")->value : nullptr;
  // from_torch.py writes the path of the weights as seen from its own working directory.
  Entry* weights = init ? init->FindEntry("weights") : nullptr;
  if (!weights || weights->value.kind != YamlNode::Kind::kScalar) return;
  std::string named = weights->value.text;
  if (!ExpandPath(named).empty() || IsThere(named)) return;
  const fs::path beside = fs::path(path).parent_path() / fs::path(named).filename();
  if (!IsThere(beside.string())) return;
  notes.push_back(ToString(problems.Where(weights->value)) + ": model.init.weights: there is no " +
                  named + "; " + beside.string() + ", which lies beside the file, is taken");
  weights->value.text = beside.string();
}

// What `own` lacks comes from `given`; maps key by key.
void Fill(YamlNode& own, const YamlNode& given) {
  for (const Entry& entry : given.entries) {
    Entry* mine = own.FindEntry(entry.key.text);
    if (!mine) {
      own.entries.push_back(entry);
    } else if (mine->value.kind == YamlNode::Kind::kMap &&
               entry.value.kind == YamlNode::Kind::kMap) {
      Fill(mine->value, entry.value);
    }
  }
}

}  // namespace

Key ModelFileKey() {
  Key key = MakeKey("file", "text",
                    "a file with a `model:` section, whose keys those beside it replace; from the "
                    "working directory; `~` and ${VAR} expand");
  key.schemas = {TextSchema("")};
  key.default_text = "none";
  key.read = [](const YamlNode& node, const ReadContext& context) {
    std::string text;
    const std::string refusal = ReadText(node, text);
    if (!refusal.empty()) context.problems.Add(node, context.path, refusal);
  };
  key.write = [] { return std::optional<YamlNode>(); };
  return key;
}

void TakeModelFile(YamlNode& root, Problems& problems, std::vector<std::string>& notes) {
  Entry* entry = root.FindEntry("model");
  if (!entry || entry->value.kind != YamlNode::Kind::kMap) return;
  YamlNode& model = entry->value;
  const Entry* named = model.FindEntry("file");
  if (!named || named->value.kind != YamlNode::Kind::kScalar) return;
  if (!FileStays(model, problems, notes)) return;
  const Entry file = *model.FindEntry("file");
  std::string path = file.value.text;
  const std::string refusal = ExpandPath(path);
  if (!refusal.empty()) return problems.Add(file.value, kFile, refusal);
  YamlNode section = ReadModelFile(path, file, problems);
  if (section.FindEntry("file"))
    problems.Add(section.FindEntry("file")->key, kFile, "a file of model.file names no other");
  // A file that could not be read gives an empty section, about which nothing more is to be said.
  if (problems.count() == 0 && !OtherNetwork(section))
    problems.Add(section, "model", "expected `zoo:` or `layers:` in a file of model.file");
  FindWeights(section, path, problems, notes);
  // The network then counts as given by --set, so Dropper removes keys of the main file that it
  // does not know, as with --set model.zoo.
  for (Entry& entry : section.entries) {  // the choice was made where `file` was
    const bool network = entry.key.text == "zoo" || entry.key.text == "layers";
    if (network && file.key.source > 0) entry.key.source = file.key.source;
  }
  Fill(model, section);
}

}  // namespace ada::config
