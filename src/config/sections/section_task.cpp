// The keys that only some tasks have (train.class_weights, evaluate.recompute_batch_norm and the
// section `detection`), and what a task asks of the other sections. A data set, a network, a loss
// and several keys belong to one task each. A key that the task does not use is refused, so that
// nobody believes that it acts.
#include "config/sections/sections.h"
#include "error.h"

namespace ada::config {
namespace {

const EnumNames<Task> kTasks = {{"classification", Task::kClassification},
                                {"segmentation", Task::kSegmentation},
                                {"detection", Task::kDetection},
                                {"language", Task::kLanguage}};
const Names kBoxPresets = {"ssd300", "ssd512"};
// Feature maps at most, and pixels of a side.
constexpr double kMostSide = 16384;
constexpr std::size_t kMostMaps = 64;

// A list of lists of numbers above zero.
// An inner list may be empty: such a map has only the two squares.
Key AspectRatiosKey(std::vector<std::vector<double>>& ratios) {
  const Range range = Above(0);
  Key key = MakeKey("aspect_ratios", "list of lists of numbers",
                    "of each feature map: ratios r of the boxes of r and of 1 / r, beside the two "
                    "squares that every place has");
  key.range = "each " + range.Text();
  key.schemas = {ListSchema({ListSchema({NumberSchema(range)})}, 1)};
  key.read = [&ratios, range](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kList)
      return context.problems.Add(node, context.path, Expected("a list of lists of numbers", node));
    if (node.items.empty())
      return context.problems.Add(node, context.path,
                                  "expected a list of numbers for each feature map; got none");
    // The list replaces the default as a whole.
    ratios.clear();
    for (const YamlNode& map : node.items) {
      if (map.kind != YamlNode::Kind::kList)
        return context.problems.Add(map, context.path, Expected("a list of numbers", map));
      std::vector<double>& values = ratios.emplace_back();
      for (const YamlNode& item : map.items) {
        const std::string refusal = ReadNumber(item, range, values.emplace_back());
        if (!refusal.empty()) return context.problems.Add(item, context.path, refusal);
      }
    }
  };
  key.write = [&ratios]() -> std::optional<YamlNode> {
    std::vector<YamlNode> maps;
    for (const std::vector<double>& values : ratios) {
      std::vector<YamlNode> items;
      for (const double value : values) items.push_back(Scalar(NumberText(value)));
      maps.push_back(List(std::move(items)));
    }
    return List(std::move(maps));
  };
  return key.Required();
}

// Default boxes as SSD has them (Liu et al. 2016): a square of a map's size, one of the geometric
// mean of this size and the next, and the aspect ratios. Hence one size more than maps.
Section OwnBoxesSection(DefaultBoxesConfig& boxes) {
  Section section;
  section.path = "detection.boxes";
  section.keys = {
      OfItems(IntegerList("grids", boxes.grids, FromTo(1, 1024),
                          "rows (and columns) of each feature map that boxes are told from"),
              1, kMostMaps, "expected 1 to 64 feature maps")
          .Required(),
      NumberList("steps", boxes.steps, FromTo(1, kMostSide),
                 "pixels of the input between two places of each map")
          .Required(),
      NumberList("sizes", boxes.sizes, FromTo(1, kMostSide),
                 "side of the squares of each map, in pixels of the input, and one size more")
          .Required(),
      AspectRatiosKey(boxes.aspect_ratios),
  };
  section.check = [&boxes](const YamlNode& map, const ReadContext& context) {
    const std::size_t maps = boxes.grids.size();
    if (maps == 0 || maps > kMostMaps) return;  // the key says so
    const auto expect = [&](const char* name, std::size_t have, std::size_t want) {
      if (have == want) return;
      const YamlNode* value = map.Find(name);
      context.problems.Add(value != nullptr ? *value : map, Join(context.path, name),
                           "expected " + std::to_string(want) + " for " + std::to_string(maps) +
                               " feature maps (detection.boxes.grids); got " +
                               std::to_string(have));
    };
    expect("steps", boxes.steps.size(), maps);
    expect("sizes", boxes.sizes.size(), maps + 1);
    expect("aspect_ratios", boxes.aspect_ratios.size(), maps);
  };
  return section;
}

// A preset is a name of vision::DefaultBoxesOf; the map says all of its numbers.
Key BoxesKey(DefaultBoxesConfig& boxes) {
  Key key = MakeKey("boxes", "word or map",
                    "the default boxes: those of a network of the zoo, or by feature map");
  key.range = "ssd300, ssd512, {grids: [...], steps: [...], sizes: [...], aspect_ratios: [[...]]}";
  key.default_text = "the zoo network's";
  key.schemas = {WordSchema(kBoxPresets),
                 MapSchema([] { return ExampleSection<DefaultBoxesConfig>(OwnBoxesSection); })};
  key.read = [&boxes](const YamlNode& node, const ReadContext& context) {
    if (node.kind == YamlNode::Kind::kMap)
      return ReadSection(node, OwnBoxesSection(boxes), context);
    for (const std::string& preset : kBoxPresets) {
      if (!IsWord(node, preset)) continue;
      boxes.preset = preset;
      return;
    }
    context.problems.Add(node, context.path, Expected("ssd300, ssd512 or a map", node));
  };
  key.write = [&boxes]() -> std::optional<YamlNode> {
    if (!boxes.preset.empty()) return Scalar(boxes.preset);
    if (boxes.grids.empty()) return std::nullopt;
    return WriteSection(OwnBoxesSection(boxes));
  };
  return key;
}

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
                          augment.mixup.alpha > 0 || augment.cutmix.alpha > 0 ||
                          data.changes.random());
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

// Throws InternalError for a value that kTasks lacks, which is a fault of this program.
const char* TaskWord(Task task) {
  for (const auto& [word, value] : kTasks)
    if (value == task) return word.c_str();
  throw InternalError("a task without a word");
}

Key TaskKey(Task& task) {
  return Choice("task", task, kTasks,
                "what the network is trained for: one label an image; one a pixel; boxes with "
                "labels; the next token")
      .WrittenIf([&task] { return task != Task::kClassification; });
}

// Whether there is a weight for each class is checked once model.classes is known.
Key ClassWeightsKey(ClassWeightsConfig& weights) {
  using Kind = ClassWeightsConfig::Kind;
  const Range range = AtLeast(0);
  Key key = MakeKey("class_weights", "word or list of numbers",
                    "segmentation: what a pixel counts in the loss, by its class; "
                    "median_frequency: the median of the classes' frequencies through its own");
  key.range = "none, median_frequency, [one a class, " + range.Text() + "]";
  key.schemas = {WordSchema({"none", "median_frequency"}), ListSchema({NumberSchema(range)}, 1)};
  key.read = [&weights, range](const YamlNode& node, const ReadContext& context) {
    if (IsWord(node, "none")) {
      weights.kind = Kind::kNone;
    } else if (IsWord(node, "median_frequency")) {
      weights.kind = Kind::kMedianFrequency;
    } else if (node.kind == YamlNode::Kind::kList && !node.items.empty()) {
      weights.kind = Kind::kGiven;
      weights.values.clear();
      for (const YamlNode& item : node.items) {
        const std::string refusal = ReadNumber(item, range, weights.values.emplace_back());
        if (!refusal.empty()) return context.problems.Add(item, context.path, refusal);
      }
    } else {
      context.problems.Add(node, context.path,
                           Expected("none, median_frequency or a list of numbers", node));
    }
  };
  key.write = [&weights]() -> std::optional<YamlNode> {
    if (weights.kind == Kind::kNone) return Scalar("none");
    if (weights.kind == Kind::kMedianFrequency) return Scalar("median_frequency");
    std::vector<YamlNode> items;
    for (const double value : weights.values) items.push_back(Scalar(NumberText(value)));
    return List(std::move(items));
  };
  return key.WrittenIf([&weights] { return weights.kind != Kind::kNone; });
}

// A key of `evaluate` in three states; the field has an enumeration, so a boolean is only its short
// form.
Key RecomputeBatchNormKey(BatchNormStatistics& statistics) {
  Key key = MakeKey("recompute_batch_norm", "boolean or word",
                    "before each evaluation: mean and variance of batch norms anew from all "
                    "training images; reference: averaged as ChainerCV's example does");
  key.range = "true, false, reference";
  key.schemas = {SwitchSchema(), WordSchema({"reference"})};
  key.read = [&statistics](const YamlNode& node, const ReadContext& context) {
    if (IsWord(node, "reference")) {
      statistics = BatchNormStatistics::kReference;
      return;
    }
    bool recomputed = false;
    if (!ReadSwitch(node, recomputed).empty())
      return context.problems.Add(node, context.path,
                                  Expected("true, false or reference", node) + QuotedHint(node));
    statistics = recomputed ? BatchNormStatistics::kRecomputed : BatchNormStatistics::kRunning;
  };
  key.write = [&statistics]() -> std::optional<YamlNode> {
    if (statistics == BatchNormStatistics::kReference) return Scalar("reference");
    return Scalar(statistics == BatchNormStatistics::kRecomputed ? "true" : "false");
  };
  return key.WrittenIf([&statistics] { return statistics != BatchNormStatistics::kRunning; });
}

// The numbers after `boxes` and `variances` belong to three stages: negatives to the loss; score,
// nms, candidates and most to what an evaluation keeps; draw only to pictures.
// SSD's paper and its port in ChainerCV are where the defaults come from.
Section DetectionSection(DetectionConfig& detection) {
  Section section;
  section.path = "detection";
  section.where = &detection.where;
  section.keys = {
      BoxesKey(detection.boxes),
      OfItems(NumberList("variances", detection.variances, Above(0),
                         "what offsets of centres and of sizes are divided by"),
              2, 2, "expected two numbers: of centres, of sizes"),
      Number("negatives", detection.negatives, AtLeast(0),
             "boxes of background in the loss for each that learns an object: the hardest"),
      Number("score", detection.score, FromTo(0, 1), "detections below it are dropped"),
      Number("nms", detection.nms, FromTo(0, 1),
             "overlap (IoU) from which the less likely of two boxes of a class is dropped"),
      Integer("candidates", detection.candidates, FromTo(0, 1'000'000),
              "boxes of a class that are compared so, the likeliest; 0: all"),
      Integer("most", detection.most, FromTo(0, 1'000'000),
              "detections of an image, the likeliest; 0: all"),
      Number("draw", detection.draw, FromTo(0, 1),
             "score from which evaluate --predictions and predict draw a box"),
  };
  return section;
}

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
