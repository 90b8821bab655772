// Images and batches, as the section `data` asks for them.
#include <algorithm>
#include <memory>
#include <utility>

#include "config/load.h"
#include "data/image_writer.h"
#include "data/readers.h"
#include "data/segmentation/label_files.h"
#include "error.h"
#include "io/machine.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/metrics/prediction.h"

namespace ada::run {
namespace {

constexpr int kMostWorkers = 8;  // unless data.workers says more
// Batches made ahead if several processes make one together: more would only use memory.
constexpr int kDistributedAhead = 2, kDistributedAheadOfEvaluation = 1;

// The message names the key and its position in the file.
[[noreturn]] void FailKey(const config::Config& config, const char* key,
                          const std::string& problem) {
  throw ConfigError(config::KeyText(config, key) + ": " + problem);
}

// What training and evaluation have in common.
data::LoaderSpec CommonLoader(const config::Config& config) {
  const config::DataConfig& d = config.data;
  const bool decodes = data::FactsOf(d.dataset).decodes();
  data::LoaderSpec spec;
  spec.seed = config.seed;
  spec.workers = decodes ? std::clamp(UsableCores(), 1, kMostWorkers) : 1;
  if (d.workers) spec.workers = *d.workers;
  spec.changes.resize = d.changes.resize;
  spec.changes.center_crop = d.changes.center_crop;
  return spec;
}

// The size that stored images become; ConfigError if training and evaluation would differ.
data::PictureSize InputSize(const config::Config& config, data::PictureSize train,
                            data::PictureSize test) {
  const auto after = [&config](const data::LoaderSpec& spec, data::PictureSize stored) {
    try {
      return data::SizeAfter(spec, stored, config.data.dataset);
    } catch (const DataError& error) {
      FailKey(config, "data.resize", error.what());
    }
  };
  const data::PictureSize trained = after(TrainChanges(config), train);
  const data::PictureSize evaluated = after(CommonLoader(config), test);
  if (trained == evaluated) return trained;
  FailKey(config, "data.center_crop",
          "the network would be trained on images of " + data::SizeText(trained) +
              " and evaluated on images of " + data::SizeText(evaluated) +
              "; set data.resize and data.center_crop so that both have one size (for 224x224: "
              "resize: 256, center_crop: 224)");
}

// Finds the sizes of each split's images from its first picture.
void FindSizes(const config::Config& config, data::Splits* splits) {
  if (!data::FactsOf(config.data.dataset).decodes()) return;
  const bool skip = config.data.on_broken == config::BrokenImages::kSkip;
  for (data::Dataset* split : {&splits->train, &splits->validation, &splits->test}) {
    if (split->images() == 0) continue;
    const data::PictureSize size = data::SizeOfFirst(*split, skip);
    split->height = size.height, split->width = size.width;
  }
}

data::HeldBack HeldBackOf(const config::Config& config) {
  return {config.data.validation, config.data.validation_share, config.seed};
}

}  // namespace

data::LoaderSpec TrainChanges(const config::Config& config) {
  const config::DataConfig& d = config.data;
  data::LoaderSpec spec = CommonLoader(config);
  spec.batch_size = d.batch_size;
  spec.shuffle = d.shuffle;
  spec.drop_last = d.drop_last;
  spec.pad = d.augment.pad;
  spec.random_crop = d.augment.random_crop;
  spec.horizontal_flip = d.augment.horizontal_flip;
  spec.changes = d.changes;
  if (d.on_broken == config::BrokenImages::kSkip) spec.on_broken = data::OnBroken::kReplace;
  if (spec.changes.any() || data::FactsOf(d.dataset).decodes()) spec.prefetch = kDistributedAhead;
  return spec;
}

const char* SamplesWord(const config::Config& config) {
  return config.task == Task::kLanguage ? "sequences" : "images";
}

data::FileChoices ChoicesOf(const config::Config& config) {
  const config::DataConfig& d = config.data;
  data::FileChoices choices;
  choices.more_paths = d.more_paths;
  choices.class_names = d.class_names;
  choices.ignored_label = d.ignored_label;
  choices.layout = d.layout;
  choices.label_values = d.label_values;
  choices.train = d.splits.train, choices.test = d.splits.test;
  choices.validation_split = d.splits.validation;
  choices.held_back = HeldBackOf(config);
  choices.limit_train = d.limit.train;
  choices.pictures = d.pictures;
  choices.skip_broken = d.on_broken == config::BrokenImages::kSkip;
  choices.language = config.task == Task::kLanguage;
  choices.token_type = d.element;
  choices.context = d.context;
  choices.vocabulary = d.vocabulary > 0 ? d.vocabulary : config.model.classes;
  choices.validation = d.validation_share;
  return choices;
}

namespace {

data::DatasetInfo InfoOfFiles(const config::Config& config) {
  data::DatasetInfo info = data::Inspect(config.data.dataset, config.data.path, ChoicesOf(config));
  if (!info.found || info.found->train.tokens) return info;
  FindSizes(config, info.found.get());
  info.height = info.found->train.height, info.width = info.found->train.width;
  return info;
}

data::DatasetInfo InfoOfSynthetic(const data::SyntheticSpec& s) {
  data::DatasetInfo info{s.height, s.width, s.channels, s.classes, s.train, s.test};
  info.in_memory = std::int64_t{s.height} * s.width * s.channels +
                   static_cast<std::int64_t>(sizeof(data::Label));
  return info;
}

// Checks keys with a value for each channel, and augmentations that some images cannot have.
void CheckChannels(const config::Config& config, const data::DatasetInfo& info,
                   data::PictureSize stored) {
  const config::NormalizeConfig& normalize = config.data.normalize;
  const auto check = [&](const char* key, std::size_t count) {
    if (normalize.kind != config::NormalizeConfig::Kind::kCustom ||
        count == static_cast<std::size_t>(info.channels))
      return;
    FailKey(config, key,
            "expected one number per channel, " + std::to_string(info.channels) + "; got " +
                std::to_string(count));
  };
  check("data.normalize.mean", normalize.mean.size());
  check("data.normalize.std", normalize.std.size());
  data::Dataset images;
  images.name = config.data.dataset;
  images.height = stored.height, images.width = stored.width, images.channels = info.channels;
  if (info.found) images.store = info.found->train.store;
  const data::ChangesProblem problem = data::ProblemOfChanges(
      images, TrainChanges(config), !data::FactsOf(config.data.dataset).decodes());
  if (!problem.empty()) FailKey(config, problem.key.c_str(), problem.text);
}

// Checks pictures that all have one size only if their files do.
void CheckSizes(const config::Config& config, const RunData& run, data::PictureSize input) {
  const data::LoaderSpec train = TrainChanges(config), evaluation = CommonLoader(config);
  const bool skip = config.data.on_broken == config::BrokenImages::kSkip;
  for (const data::Dataset* split : {&run.train, &run.validation, &run.test}) {
    if (split->label_images) data::RequireLabelSizes(*split, skip);
    const data::LoaderSpec& spec = split == &run.train ? train : evaluation;
    if (data::FixesSize(spec) || split->images() == 0) continue;
    data::RequireOneSize(
        *split, input,
        [&](data::PictureSize size) { return data::SizeAfter(spec, size, split->name); }, skip);
  }
}

// Converts the stored shape to the shape that the network gets.
void FitImages(const config::Config& config, data::DatasetInfo* info) {
  const data::PictureSize stored{info->height, info->width};
  const data::PictureSize input = InputSize(
      config, stored,
      info->found ? data::PictureSize{info->found->test.height, info->found->test.width} : stored);
  CheckChannels(config, *info, stored);
  info->height = input.height, info->width = input.width;
}

// Whether data.validation takes images from split train: not where the files needed it for split
// test. Throws ConfigError if the files have a validation split.
bool HoldsBack(const config::Config& config, const data::DatasetInfo& info) {
  if (!HeldBackOf(config).any() || data::FactsOf(config.data.dataset).has_tokens()) return false;
  if (info.found && info.found->test_is_held_back) return false;
  if (info.validation > 0)
    FailKey(config, "data.validation",
            "holds images back, and the files have a validation split of their own, " +
                Counted(info.validation, "image") + "; expected one of them");
  return true;
}

// A patch that does not divide the image would leave its last rows or columns out without a word.
void CheckPatches(const config::Config& config, const data::DatasetInfo& info) {
  const int patch = config.model.transformer.patch;
  if (!config.model.zoo.starts_with("vit") || (info.height % patch == 0 && info.width % patch == 0))
    return;
  FailKey(config, "model.patch",
          std::to_string(patch) + " does not divide images of " + std::to_string(info.height) +
              "x" + std::to_string(info.width) +
              " pixels; expected a divisor of both sides (or another data.resize)");
}

}  // namespace

// Reads headers and lists, but no images. Limits are applied before the validation share, which is
// therefore a share of the images that are used.
data::DatasetInfo InspectData(const config::Config& config) {
  const config::DataConfig& d = config.data;
  const data::DatasetFacts& facts = data::FactsOf(d.dataset);
  if (facts.origin == data::Origin::kOtherProgram)
    FailKey(config, "data.dataset",
            d.dataset +
                ": another program trained this run and recorded it (ada_train.torch); ada-train "
                "reads such runs and does not train them");
  data::DatasetInfo info = facts.has_path() ? InfoOfFiles(config) : InfoOfSynthetic(d.synthetic);
  if (config.task != Task::kLanguage) FitImages(config, &info);
  if (d.limit.train > 0) info.train = std::min(info.train, d.limit.train);
  if (d.limit.test > 0) info.test = std::min(info.test, d.limit.test);
  if (HoldsBack(config, info)) {
    info.validation = HeldBackOf(config).Of(info.train);
    info.train -= info.validation;
  }
  if (info.train < 1)
    FailKey(config, "data.validation",
            std::to_string(info.validation) + " " + SamplesWord(config) +
                " held back leave none of " + std::to_string(info.train + info.validation) +
                " to train on");
  if (d.drop_last && info.train < d.batch_size)
    FailKey(config, "data.batch_size",
            std::to_string(d.batch_size) + " is more than the " + std::to_string(info.train) +
                " training " + SamplesWord(config) +
                ", and drop_last leaves no batch; use a smaller batch or "
                "drop_last: false");
  return info;
}

// Once the number of classes is known, all that depends on it is checked: the network's outputs,
// class weights and default boxes.
config::Config Completed(config::Config config, const data::DatasetInfo& info) {
  const int least = config.task == Task::kDetection ? 1 : 2;
  if (info.classes < least && config.task != Task::kLanguage)
    FailKey(config, "data.path",
            config.data.path + ": holds " + (info.classes == 1 ? "one class" : "no class") +
                "; expected " + (least == 1 ? "one or more" : "two or more"));
  if (config.model.classes == 0) config.model.classes = info.classes;
  if (config.model.classes < info.classes)
    FailKey(config, "model.classes",
            "the data set has " + std::to_string(info.classes) + " classes; got " +
                std::to_string(config.model.classes));
  using Weights = config::ClassWeightsConfig;
  const Weights& weights = config.train.class_weights;
  if (weights.kind == Weights::Kind::kGiven &&
      weights.values.size() != static_cast<std::size_t>(config.model.classes))
    FailKey(config, "train.class_weights",
            "expected one number a class, " + std::to_string(config.model.classes) + "; got " +
                std::to_string(weights.values.size()));
  CheckBoxes(config, {1, info.height, info.width, info.channels});
  // The loader, which is made when everything else is there, asks for both sides.
  const bool has_boxes = data::FactsOf(config.data.dataset).origin == data::Origin::kBoxes;
  if (has_boxes && config.data.changes.resize.to.height == 0)
    FailKey(config, "data.resize",
            "images with boxes are resized to the size that the network takes; expected [height, "
            "width]");
  CheckPatches(config, info);
  if (!config.data.evaluate_batch_size && config.task == Task::kLanguage) {
    constexpr int kTokens = 32'768;  // of a batch
    config.data.evaluate_batch_size =
        std::clamp(kTokens / std::max(1, info.height), 1, config::DataConfig::kEvaluationBatch);
  }
  return config;
}

// What InspectData found is copied, not moved, because `info` is used again for the facts in
// checkpoints. Limits and the validation split are applied in the order in which InspectData
// counted them.
RunData ReadData(const config::Config& config, const data::DatasetInfo& info) {
  const config::DataConfig& d = config.data;
  const data::DatasetFacts& facts = data::FactsOf(d.dataset);
  data::Splits splits = info.found         ? *info.found
                        : facts.has_path() ? data::Read(d.dataset, d.path, ChoicesOf(config))
                                           : data::MakeSynthetic(d.synthetic, config.seed);
  RunData run;
  run.train = std::move(splits.train);
  run.test = std::move(splits.test);
  run.validation = std::move(splits.validation);
  run.warnings = std::move(splits.warnings);
  run.image = {1, info.height, info.width, info.channels};
  run.class_names = std::move(splits.class_names);
  run.note = std::move(splits.note);
  data::Limit(run.train, d.limit.train);
  data::Limit(run.test, d.limit.test);
  if (info.validation > 0 && run.validation.images() == 0)
    run.validation = data::SplitOff(run.train, HeldBackOf(config));
  if (d.normalize.kind == config::NormalizeConfig::Kind::kStandard)
    run.mean = splits.mean, run.std = splits.std;
  if (d.normalize.kind == config::NormalizeConfig::Kind::kCustom)
    run.mean = d.normalize.mean, run.std = d.normalize.std;
  if (facts.decodes()) CheckSizes(config, run, {info.height, info.width});
  for (std::string& line :
       WarningsOfFiles(config, run.train, run.validation, run.test, run.class_names))
    run.warnings.push_back(std::move(line));
  return run;
}

std::optional<DataFacts> FactsOfFiles(const RunData& run, const data::DatasetInfo& info) {
  if (!data::FactsOf(run.train.name).has_path()) return std::nullopt;
  return info.found ? DataFactsOf(info.found->train, info.found->test, info.found->validation)
                    : DataFactsOf(run.train, run.test);
}

RunData ReadData(const config::Config& config) { return ReadData(config, InspectData(config)); }

std::vector<std::string> NamesOfClasses(const config::Config& config, const RunData& data) {
  if (!data.class_names.empty() || !data::FactsOf(config.data.dataset).layout)
    return data.class_names;
  return data::ClassNames(config.data.dataset, config.data.path);
}

std::int64_t TokensOfSequence(const config::Config& config, const Shape& image) {
  return config.task == Task::kLanguage ? image.h : 0;
}

InputFacts InputFactsOf(const config::Config& config, const RunData& data) {
  return {data.image, data.mean, data.std, NamesOfClasses(config, data)};
}

data::LoaderSpec TrainLoader(const config::Config& config, const RunData& data) {
  data::LoaderSpec spec = TrainChanges(config);
  if (data.train.task() == Task::kDetection) spec.coder = MakeCoder(config, data.image);
  spec.mean = data.mean;
  spec.std = data.std;
  const config::AugmentConfig& augment = config.data.augment;
  spec.mixing = {augment.mixup.alpha, augment.mixup.p, augment.cutmix.alpha, augment.cutmix.p};
  return spec;
}

data::LoaderSpec EvaluationLoader(const config::Config& config, const RunData& data) {
  data::LoaderSpec spec = EvaluationLoader(config, data.mean, data.std);
  if (data.train.task() == Task::kDetection) spec.coder = MakeCoder(config, data.image);
  return spec;
}

// Broken images are left out of an evaluation, but replaced in training, where every batch has to
// be complete.
data::LoaderSpec EvaluationLoader(const config::Config& config, const std::vector<double>& mean,
                                  const std::vector<double>& std) {
  data::LoaderSpec spec = CommonLoader(config);
  spec.batch_size = config.data.evaluation_batch();
  spec.mean = mean;
  spec.std = std;
  spec.prefetch =
      TrainChanges(config).prefetch == kDistributedAhead ? kDistributedAheadOfEvaluation : 2;
  if (config.data.on_broken == config::BrokenImages::kSkip)
    spec.on_broken = data::OnBroken::kLeaveOut;
  return spec;
}

}  // namespace ada::run
