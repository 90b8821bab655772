// Each check looks only at keys that were read without a problem.
// These are the checks and defaults that need more than one section; what a section can check is in
// its table. Complete at the end is the list of them.
#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>

#include "config/keys/scalars.h"
#include "config/sections/sections.h"
#include "io/shown_text.h"

namespace ada::config {
namespace {

// The value at `section.key`, or the nearest thing above it that was written.
const YamlNode& At(const YamlNode& root, std::string_view section, std::string_view key) {
  const YamlNode* map = root.Find(section);
  if (!map) return root;
  const YamlNode* value = map->Find(key);
  return value ? *value : *map;
}

// All parts of a batch have one size. The problem is told at the key that was changed last: an
// override of `accumulate`, else the batch's size.
void CheckBatch(const Config& config, const YamlNode& root, Problems& problems) {
  if (!problems.Clean({"data.batch_size", "train.accumulate"})) return;
  if (config.data.batch_size % config.train.accumulate == 0) return;
  const YamlNode* train = root.Find("train");
  const bool by_set = train && train->Find("accumulate") && train->Find("accumulate")->source > 0;
  const std::string message = "batch_size, " + std::to_string(config.data.batch_size) +
                              ", must be a multiple of train.accumulate, " +
                              std::to_string(config.train.accumulate);
  const YamlNode& at = by_set ? *train->Find("accumulate") : At(root, "data", "batch_size");
  problems.Add(at, by_set ? "train.accumulate" : "data.batch_size", message);
}

// Sums between processes have the format and the scales of the gradients that are added up.
void CheckSums(const Config& config, const YamlNode& root, Problems& problems) {
  if (!config.precision.accumulated_gradients.scales()) return;
  const ParallelConfig& parallel = config.parallel;
  constexpr char kWhy[] =
      "precision.accumulated_gradients with scaling fp8_lm decides the format of sums between "
      "processes; leave it out";
  if (parallel.gradients != GradientTransport::kFp32)
    problems.Add(At(root, "parallel", "gradients"), "parallel.gradients", kWhy);
  if (parallel.reduction.format)
    problems.Add(At(root, "parallel", "reduction"), "parallel.reduction.format", kWhy);
}

void CheckNormalize(const Config& config, const YamlNode& root, Problems& problems) {
  const NormalizeConfig& normalize = config.data.normalize;
  if (normalize.kind != NormalizeConfig::Kind::kCustom) return;
  if (!problems.Clean({"data.dataset", "data.synthetic.channels", "data.normalize.mean",
                       "data.normalize.std"})) {
    return;
  }
  const auto channels = static_cast<std::size_t>(ChannelsOf(config.data));
  if (channels == 0) return;  // only the data's files say it
  const auto check = [&](const char* key, std::size_t count) {
    if (count == channels) return;
    problems.Add(At(*root.Find("data"), "normalize", key), std::string("data.normalize.") + key,
                 "expected one number per channel, " + std::to_string(channels) + "; got " +
                     std::to_string(count));
  };
  // Pixels are divided in fp32.
  for (const double deviation : normalize.std)
    if (deviation < static_cast<double>(std::numeric_limits<float>::min()))
      problems.Add(At(*root.Find("data"), "normalize", "std"), "data.normalize.std",
                   NumberText(deviation) + " is too small for fp32");
  check("mean", normalize.mean.size());
  check("std", normalize.std.size());
}

// For a transformer `vocabulary` is another name for `classes`, and a preset has its own. After
// this only model.classes is used: the given value, or the vocabulary, or the number from the
// data set (0 if only its files tell it). More classes than the data has are allowed, fewer are
// not.
void CheckClasses(Config& config, const YamlNode& root, Problems& problems) {
  if (!problems.Clean(
          {"data", "data.dataset", "data.synthetic.classes", "model.classes", "model.vocabulary"}))
    return;
  const int classes = ClassesOf(config.data);
  const YamlNode* model = root.Find("model");
  const YamlNode* given = model ? model->Find("classes") : nullptr;
  const YamlNode* vocabulary = model ? model->Find("vocabulary") : nullptr;
  std::optional<int>& tokens = config.model.transformer.vocabulary;
  if (given && vocabulary && tokens != config.model.classes) {
    return problems.Add(*vocabulary, "model.vocabulary",
                        "says the same as classes, " + std::to_string(config.model.classes) +
                            "; got " + std::to_string(*tokens));
  }
  if (!given) config.model.classes = tokens.value_or(classes);
  if (given) tokens.reset();  // the vocabulary of a preset
  if (config.model.classes >= classes) return;
  problems.Add(vocabulary ? *vocabulary
               : given    ? *given
                          : *model,
               vocabulary ? "model.vocabulary" : "model.classes",
               "the data set has " + std::to_string(classes) + " classes; got " +
                   std::to_string(config.model.classes));
}

// Also for schedules that do not use min_lr, whose value is then its default, 0.
void CheckLearningRates(const Config& config, const YamlNode& root, Problems& problems) {
  if (!problems.Clean({"optimizer.lr", "schedule.min_lr"})) return;
  if (config.schedule.min_lr <= config.optimizer.lr) return;
  problems.Add(At(root, "schedule", "min_lr"), "schedule.min_lr",
               "must not be above optimizer.lr, " + NumberText(config.optimizer.lr));
}

// Only what is known without the data's files: a limit on the training samples, or made-up images.
void CheckValidation(const Config& config, const YamlNode& root, Problems& problems) {
  if (!problems.Clean({"data", "data.dataset", "data.limit", "data.limit.train",
                       "data.synthetic.train", "data.validation"}))
    return;
  const DataConfig& data = config.data;
  std::int64_t images = data.limit.train;
  if (!data::FactsOf(data.dataset).has_path() && (images == 0 || images > data.synthetic.train)) {
    images = data.synthetic.train;
  }
  if (images == 0 || data.validation < images || data.validation == 0) return;
  problems.Add(At(root, "data", "validation"), "data.validation",
               "holds back all of the " + std::to_string(images) + " training images");
}

// The length of a language model's training is given in steps.
void FillEpochs(Config& config, const YamlNode& root) {
  const YamlNode* train = root.Find("train");
  const bool given = train != nullptr && train->Find("epochs") != nullptr;
  if (config.task == Task::kLanguage && config.train.max_steps > 0 && !given)
    config.train.epochs = 0;
}

// alpha is multiplied with dy before its matmul there, which reads stored values.
void CheckOperands(const Config& config, const YamlNode& root, Problems& problems) {
  // Whether a part (`precision` itself, or an entry of its schedule) or a layer's entry within it
  // says anything about operands.
  const auto gives = [](const auto& part) {
    return part.operands.given() ||
           std::any_of(part.layers.begin(), part.layers.end(),
                       [](const auto& layer) { return layer.operands.given(); });
  };
  const PrecisionConfig& precision = config.precision;
  const bool given =
      gives(precision) || std::any_of(precision.schedule.begin(), precision.schedule.end(), gives);
  if (!given || !config.scaling.reference || !problems.Clean({"scaling.reference"})) return;
  problems.Add(At(root, "scaling", "reference"), "scaling.reference",
               "the original program, which `reference` follows, has no precision.operands; leave "
               "out one of the two");
}

void CheckAccumulate(const Config& config, const YamlNode& root, Problems& problems) {
  if (config.precision.accumulate.newton_schulz &&
      config.optimizer.kind != backend::UpdateRule::Kind::kMuon &&
      problems.Clean({"precision.accumulate.ns", "optimizer.kind"}))
    problems.Add(At(root, "precision", "accumulate"), "precision.accumulate.ns",
                 "the Newton-Schulz iteration is that of optimizer.kind muon; leave it out");
  if (!config.precision.accumulates() || !config.scaling.reference ||
      !problems.Clean({"scaling.reference"}))
    return;
  problems.Add(At(root, "scaling", "reference"), "scaling.reference",
               "the original program, which `reference` follows, has no precision.accumulate; "
               "leave out one of the two");
}

// The name of a file may have any bytes, that of a run is text: others are written as \xfc.
void FillName(Config& config, const YamlNode& root, const std::string& file, Problems& problems) {
  if (config.name.empty() && problems.Clean({"name"})) {
    config.name = Visible(std::filesystem::path(file).stem().string());
    const std::string refusal = RefuseName(config.name);
    if (config.name.empty() || !refusal.empty())
      problems.Add(
          root, "name",
          "missing; the file's name " + (refusal.empty() ? std::string("gives none") : refusal));
  }
  if (config.output.empty()) config.output = "runs/" + config.name;
}

// The folder of a data set that can be fetched, where none is given.
void FillDataPath(DataConfig& data, const YamlNode& root, Problems& problems) {
  if (!data.path.empty() || !problems.Clean({"data.dataset", "data.path"})) return;
  data.path = data::DefaultPath(data::FactsOf(data.dataset));
  const std::string refusal = RefuseBytes(data.path);
  if (!refusal.empty()) problems.Add(At(root, "data", "dataset"), "data.path", refusal);
}

}  // namespace

void Complete(Config& config, const YamlNode& root, const std::string& file, Problems& problems) {
  config.file = file;
  FillName(config, root, file, problems);
  FillEpochs(config, root);
  FillDataPath(config.data, root, problems);
  CheckBatch(config, root, problems);
  CheckNormalize(config, root, problems);
  CheckClasses(config, root, problems);
  CheckLearningRates(config, root, problems);
  CheckValidation(config, root, problems);
  CheckOperands(config, root, problems);
  CheckAccumulate(config, root, problems);
  CheckUpdate(config.optimizer, config.precision, root, problems);
  CheckSums(config, root, problems);
  CheckTask(config, root, problems);
}

}  // namespace ada::config
