// The evaluate command.
#include <optional>
#include <ostream>

#include "config/load.h"
#include "error.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/evaluation_commands.h"
#include "run/evaluate/evaluator.h"
#include "run/evaluate/norm_statistics.h"
#include "run/evaluate/predictions.h"
#include "run/evaluate/protect_data.h"
#include "run/evaluate/reports.h"
#include "run/evaluate/weights.h"
#include "run/facts/data_facts.h"
#include "run/memory_need.h"
#include "step/specs.h"
#include "telemetry/progress.h"
#include "telemetry/progress_text.h"

namespace ada::run {
namespace {

constexpr char kTestSplit[] = "test", kValidationSplit[] = "validation";

// The split whose logits --outputs writes: test, or validation where a text has no test.
const char* SplitOfOutputs(const RunData& data) {
  return data.train.tokens && data.test.images() == 0 ? kValidationSplit : kTestSplit;
}

// The network as a run begins with it.
void StartWeights(const config::Config& config, graph::Graph& graph, backend::Backend& backend,
                  telemetry::Log& log) {
  const graph::WeightsCover cover =
      graph::Initialize(graph, config.model.init, config.seed, backend);
  log.Info(cover.path.empty() ? "evaluating the network as model.init leaves it"
                              : "evaluating " + cover.LoadedText());
  if (!cover.missing.empty()) log.Warning(cover.MissingText());
  if (!cover.ignored.empty()) log.Info(cover.IgnoredText());
  if (!cover.skipped.empty()) log.Info(cover.SkippedText());
}

// Whether an evaluation asks for the very data that a checkpoint was trained with; another set, or
// part of it, need not have as many images.
bool IsSameData(const config::Config& config, const CheckpointState& state) {
  const config::DataConfig& now = config.data;
  const config::DataConfig then = config::LoadText(state.config, "the checkpoint", {}).config.data;
  return now.path == then.path && now.more_paths == then.more_paths &&
         now.splits.train == then.splits.train && now.splits.test == then.splits.test &&
         now.limit.train == then.limit.train && now.limit.test == then.limit.test &&
         now.splits.validation == then.splits.validation && now.validation == then.validation &&
         now.validation_share == then.validation_share && now.context == then.context &&
         now.dataset == then.dataset;
}

// What `evaluate --predictions` calls image `image` of a set.
std::string ImageName(const data::Dataset& dataset, std::int64_t image) {
  const std::int64_t number = dataset.NumberInFiles(image);
  return data::FactsOf(dataset.name).decodes() ? dataset.store->NameOf(number)
                                               : std::to_string(number);
}

// What is printed of one split and written of its images or sequences: classification, language.
// The order of the calls is that of the output: the constructor opens the files and prints the
// head, Write is called for each split, and Finish puts the files in their places. An error before
// Finish leaves no half-written file.
class SplitReport {
 public:
  SplitReport(const config::Config& config, const RunData& data, Evaluator& evaluator,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log)
      : language_(config.task == Task::kLanguage),
        bytes_(TokensAreBytes(config)),
        split_of_outputs_(SplitOfOutputs(data)),
        loader_(EvaluationLoader(config, data)),
        evaluator_(evaluator),
        options_(options),
        out_(out),
        log_(log) {
    if (options.per_class) names_ = NamesOfClasses(config, data);
    if (!options.predictions.empty()) predictions_.emplace(options.predictions);
    if (!options.outputs.empty()) outputs_.emplace(options.outputs, DimsOfOutputs(data));
    out << (options.per_class ? "split,class,name,images,top1,top5,precision"
                              : "split,images,loss,top1,top5")
        << (language_ ? ",perplexity,bits_per_byte\n" : "\n");
  }

  void Write(const std::string& split, const data::Dataset& dataset) {
    if (dataset.images() == 0) return;
    ClassTable classes(evaluator_.graph().classes());
    ImageVisitor visit;
    const bool gives_outputs = outputs_ && split == split_of_outputs_;
    // Without a visitor no logits are read back, which makes a plain evaluation faster.
    if (!language_ && (predictions_ || options_.per_class || gives_outputs))
      visit = [&](const ImageResult& result) {
        if (predictions_) predictions_->Add(split, ImageName(dataset, result.image), result);
        if (gives_outputs) outputs_->Add(result.image, result.logits);
        classes.Add(result);
      };
    const EvaluationResult e = [&] {
      telemetry::EvaluationProgress progress(log_, options_.progress, "evaluating " + split,
                                             dataset.images(), telemetry::SteadySeconds,
                                             language_ ? dataset.tokens->context() : 0);
      EvaluationCallbacks callbacks;
      callbacks.visit = visit;
      if (language_ && gives_outputs)
        callbacks.outputs = [&](std::int64_t image, std::span<const float> values) {
          outputs_->Add(image, values);
        };
      callbacks.after_batch = [&](std::int64_t images) { progress.Update(images); };
      return evaluator_.Run(dataset, loader_, callbacks);
    }();
    for (const data::BrokenImage& image : e.broken) log_.Warning(data::LeftOutText(split, image));
    if (options_.per_class)
      classes.Write(split, names_, out_);
    else
      out_ << split << ',' << e.images << ',' << NineDigits(e.loss) << ',' << NineDigits(e.top1)
           << ',' << NineDigits(e.top5);
    if (language_)
      out_ << ',' << NineDigits(telemetry::Perplexity(e.loss)) << ','
           << (bytes_ ? NineDigits(telemetry::Bits(e.loss)) : "");
    if (!options_.per_class) out_ << '\n';
  }

  void Finish() {
    if (predictions_) predictions_->Commit();
    if (outputs_) outputs_->Commit();
  }

 private:
  // [images, classes]; of sequences [sequences, tokens, vocabulary].
  std::vector<std::int64_t> DimsOfOutputs(const RunData& data) const {
    const Shape& logits = evaluator_.graph().logits().shape;
    const bool of_test = split_of_outputs_ == kTestSplit;
    const std::int64_t images = (of_test ? data.test : data.validation).images();
    if (language_) return {images, logits.h, logits.c};
    return {images, logits.c};
  }

  const bool language_, bytes_;
  const std::string split_of_outputs_;
  data::LoaderSpec loader_;
  Evaluator& evaluator_;
  const EvaluateOptions& options_;
  std::ostream& out_;
  telemetry::Log& log_;
  std::optional<PredictionsFile> predictions_;
  std::optional<OutputsFile> outputs_;
  std::vector<std::string> names_;
};

// What only images have, and a language model's data may lack.
void CheckLanguage(const EvaluateOptions& options, const RunData& data) {
  if (!options.predictions.empty() || options.per_class)
    throw ConfigError(std::string(options.per_class ? "--per-class" : "--predictions") +
                      ": is for images, and the task is language; --outputs writes logits");
  if (data.validation.images() + data.test.images() == 0)
    throw ConfigError(
        "data.validation: nothing is held back, and the data have no split test: "
        "there is nothing to evaluate");
}

}  // namespace

// What can be refused without reading all data comes first: the classes of the checkpoint, then the
// memory. The files that the command writes are opened last, when the weights are in place.
void Evaluate(const config::Config& given, const std::string& weights,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log) {
  const ChosenBackend chosen = MakeBackend(given.device);
  const data::DatasetInfo info = InspectData(given);
  const std::optional<CheckpointState> state =
      weights.empty() ? std::nullopt : StateOfCheckpoint(weights);
  if (state) RequireSameClasses(weights, state->input, given, info);
  const config::Config config = Completed(given, info);
  const Shape image{1, info.height, info.width, info.channels};
  Evaluator evaluator(config, image, *chosen.backend, nullptr);
  MemoryNeed need = NeedOfData(config, info, /*trains=*/false);
  need.has_own_memory = chosen.has_own_memory;
  need.network = chosen.backend->allocated_bytes();
  RefuseMemory(need, step::EvaluationGraph(config, image));
  const RunData data = ReadData(config, info);
  if (config.task == Task::kLanguage) CheckLanguage(options, data);
  if (!options.predictions.empty() && MeasuresClasses(config.task))
    ProtectPicturesOfData(options.predictions, config.task, data);
  LogFileWarnings(data, log);
  if (state && state->data_facts && IsSameData(config, *state)) {
    const std::string changes =
        ChangesOfData(*state->data_facts, *FactsOfFiles(data, info), NamesOfClasses(config, data));
    if (!changes.empty()) log.Warning(changes);
  }
  if (weights.empty())
    StartWeights(config, evaluator.graph(), *chosen.backend, log);
  else
    LoadEvaluatedWeights(weights, EvaluatesAverage(config), evaluator.graph(), *chosen.backend,
                         log);
  RecomputeNorms(config, data, evaluator.graph(), *chosen.backend, log, options.progress);
  const auto report = [&data](auto&& of_task) {
    of_task.Write(kValidationSplit, data.validation);
    of_task.Write(kTestSplit, data.test);
    of_task.Finish();
  };
  if (!MeasuresClasses(config.task))
    report(SplitReport(config, data, evaluator, options, out, log));
  else
    report(TaskReport(config, data, evaluator, options, out, log));
}

}  // namespace ada::run
