// What a task asks of the other sections.
// A data set, a network, a loss and several keys belong to one task each; a key that the task does
// not use is refused, so that nobody believes that it acts.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

// Run once for a whole configuration, after its sections. References are to what Complete was
// given.
class TaskChecks {
 public:
  TaskChecks(const Config& config, const YamlNode& root, Problems& problems)
      : config_(config), root_(root), problems_(problems) {}

  void Run() {
    if (!problems_.Clean({"task"})) return;
    const bool language = config_.task == Task::kLanguage,
               tensors = config_.data.dataset == "tensors";
    // Tensors may hold labels of images or tokens: they are for two tasks, and CheckNoImages
    // refuses the keys of images where they hold tokens.
    if (!language || !tensors)
      CheckTarget("data", "dataset", config_.data.dataset, TaskOfDataset(config_.data.dataset));
    if (language && tensors) CheckNoImages();
    if (tensors) Only(Task::kLanguage, config_.data.vocabulary > 0, {"data", "vocabulary"});
    if (!config_.model.zoo.empty())
      CheckTarget("model", "zoo", config_.model.zoo, TaskOfZoo(config_.model.zoo));
    using Weights = ClassWeightsConfig::Kind;
    Only(Task::kSegmentation, config_.train.class_weights.kind != Weights::kNone,
         {"train", "class_weights"});
    // The section `detection` is refused even with default values, since it has no use elsewhere.
    Only(Task::kDetection, true, {"detection"});
    Only(Task::kClassification, config_.train.label_smoothing > 0, {"train", "label_smoothing"});
    if (config_.task == Task::kDetection) CheckBoxes();
    CheckClassWeights();
    CheckOneClass();
  }

 private:
  using Path = std::vector<std::string>;

  // The node at a path; null if there is none.
  const YamlNode* Find(const Path& path) const {
    const YamlNode* node = &root_;
    for (const std::string& name : path)
      if (node != nullptr) node = node->Find(name);
    return node;
  }

  void Add(const YamlNode* node, const Path& path, const std::string& message) {
    std::string name;
    for (const std::string& part : path) name = Join(name, part);
    problems_.Add(node != nullptr ? *node : root_, name, message);
  }

  // A data set or a network that is of one task.
  void CheckTarget(const char* section, const char* key, const std::string& name, Task task) {
    if (task == config_.task) return;
    const YamlNode* at = Find({section, key});
    if (Find({"task"}) == nullptr)
      return Add(at, {section, key},
                 name + " is for another task; expected `task: " + TaskWord(task) +
                     "` beside the sections");
    Add(at, {section, key},
        name + " is for task " + TaskWord(task) + ", and the task is " + TaskWord(config_.task));
  }

  // A key that is written and has an effect, but belongs to one task.
  void Only(Task task, bool used, const Path& path) {
    const YamlNode* node = Find(path);
    if (node == nullptr || !used || config_.task == task) return;
    Add(node, path,
        std::string("belongs to task ") + TaskWord(task) + ", and the task is " +
            TaskWord(config_.task));
  }

  // What tensors have where they hold images; the defaults, which a run writes down, say nothing.
  void CheckNoImages() {
    const DataConfig& data = config_.data;
    const AugmentConfig& augment = data.augment;
    data::ImageChanges random = data.changes;  // those of `augment`
    random.resize = {};
    const auto refuse = [this](const char* key, bool used) {
      const YamlNode* node = Find({"data", key});
      if (node != nullptr && used)
        Add(node, {"data", key}, "is for images, and the task is language");
    };
    refuse("layout", data.layout != data::ArrayLayout::kAuto);
    refuse("normalize", data.normalize.kind != NormalizeConfig::Kind::kStandard);
    refuse("resize", data.changes.resize.any());
    refuse("center_crop", data.changes.crops());
    refuse("augment", augment.pad > 0 || augment.random_crop || augment.horizontal_flip ||
                          augment.mixup.alpha > 0 || augment.cutmix.alpha > 0 || random.any());
    const YamlNode* validation = Find({"data", "validation"});
    if (validation != nullptr && data.validation_share > 0)
      Add(validation, {"data", "validation"},
          "expected a whole number of sequences; a share is for images, text and tokens");
  }

  void CheckBoxes() {
    const DefaultBoxesConfig& boxes = config_.detection.boxes;
    if (!config_.model.zoo.empty() || !boxes.preset.empty() || !boxes.grids.empty()) return;
    if (!problems_.Clean({"detection.boxes", "model", "model.zoo"})) return;
    Add(Find({"detection"}), {"detection", "boxes"},
        "missing; a model of own layers needs its default boxes: ssd300, ssd512 or a map");
  }

  // One class is two with detection's background, but there is nothing to learn in other tasks.
  void CheckOneClass() {
    const YamlNode* classes = Find({"model", "classes"});
    if (classes == nullptr || config_.model.classes != 1 || config_.task == Task::kDetection)
      return;
    Add(classes, {"model", "classes"}, "expected 2 or more; one class is for `task: detection`");
  }

  void CheckClassWeights() {
    const ClassWeightsConfig& weights = config_.train.class_weights;
    const int classes = config_.model.classes;
    if (weights.kind != ClassWeightsConfig::Kind::kGiven || classes == 0) return;
    if (!problems_.Clean({"train.class_weights", "model.classes"})) return;
    if (weights.values.size() == static_cast<std::size_t>(classes)) return;
    Add(Find({"train", "class_weights"}), {"train", "class_weights"},
        "expected one number a class, " + std::to_string(classes) + "; got " +
            std::to_string(weights.values.size()));
  }

  const Config& config_;
  const YamlNode& root_;
  Problems& problems_;
};

}  // namespace

Task TaskOfDataset(const std::string& dataset) {
  if (dataset == "camvid") return Task::kSegmentation;
  if (data::FactsOf(dataset).has_tokens()) return Task::kLanguage;
  return dataset == "voc" ? Task::kDetection : Task::kClassification;
}

Task TaskOfZoo(const std::string& zoo) {
  if (zoo.starts_with("segnet")) return Task::kSegmentation;
  if (zoo.starts_with("gpt") || zoo.starts_with("llama")) return Task::kLanguage;
  return zoo.starts_with("ssd") ? Task::kDetection : Task::kClassification;
}

void CheckTask(const Config& config, const YamlNode& root, Problems& problems) {
  TaskChecks(config, root, problems).Run();
}

}  // namespace ada::config
