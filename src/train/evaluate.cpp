// The evaluate command.
#include <optional>
#include <ostream>

#include "core/text.h"
#include "telemetry/progress.h"
#include "train/assemble.h"
#include "train/evaluated_weights.h"
#include "train/evaluator.h"
#include "train/memory_need.h"
#include "train/predictions.h"
#include "train/run.h"
#include "train/weight_average.h"

namespace ada::train {
namespace {

// What is printed of one split and written of its images.
class SplitReport {
 public:
  SplitReport(const config::Config& config, const RunData& data, Evaluator& evaluator,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log)
      : loader_(EvaluationLoader(config, data)),
        evaluator_(evaluator),
        options_(options),
        out_(out),
        log_(log) {
    if (options.per_class) names_ = NamesOfClasses(config, data);
    if (!options.predictions.empty()) predictions_.emplace(options.predictions);
    out << (options.per_class ? "split,class,name,images,top1,top5,precision\n"
                              : "split,images,loss,top1,top5\n");
  }

  void Write(const char* split, const data::Dataset& dataset) {
    if (dataset.images() == 0) return;
    ClassTable classes(evaluator_.graph().classes());
    ImageVisitor visit;
    if (predictions_ || options_.per_class)
      visit = [&](const ImageResult& result) {
        if (predictions_) predictions_->Add(split, dataset.NumberInFiles(result.image), result);
        classes.Add(result);
      };
    const EvaluationResult e = [&] {
      telemetry::EvaluationProgress progress(log_, options_.progress, split, dataset.images());
      return evaluator_.Run(dataset, loader_, visit,
                            [&](std::int64_t images) { progress.Update(images); });
    }();
    for (const data::BrokenImage& image : e.broken)
      log_.Warning(image.message + " (left out: data.on_broken)");
    if (options_.per_class)
      classes.Write(split, names_, out_);
    else
      out_ << split << ',' << e.images << ',' << NineDigits(e.loss) << ',' << NineDigits(e.top1)
           << ',' << NineDigits(e.top5) << '\n';
  }

  void Finish() {
    if (predictions_) predictions_->Commit();
  }

 private:
  data::LoaderSpec loader_;
  Evaluator& evaluator_;
  const EvaluateOptions& options_;
  std::ostream& out_;
  telemetry::Log& log_;
  std::optional<PredictionsFile> predictions_;
  std::vector<std::string> names_;
};

}  // namespace

void Evaluate(const config::Config& given, const std::string& weights,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log) {
  const ChosenBackend chosen = MakeBackend(given.device);
  const data::DatasetInfo info = InspectData(given);
  const config::Config config = Completed(given, info);
  const Shape image{1, info.height, info.width, info.channels};
  Evaluator evaluator(config, image, *chosen.backend, nullptr);
  MemoryNeed need = NeedOfData(config, info, config.data.evaluate_batch_size);
  need.has_own_memory = chosen.has_own_memory;
  need.network = chosen.backend->allocated_bytes();
  RefuseMemory(need, EvaluationGraph(config, image));
  const RunData data = ReadData(config, info);
  if (!data.note.empty()) log.Info(data.note);
  LoadEvaluatedWeights(weights, EvaluatesAverage(config), evaluator.graph(), *chosen.backend, log);
  SplitReport report(config, data, evaluator, options, out, log);
  report.Write("validation", data.validation);
  report.Write("test", data.test);
  report.Finish();
}

}  // namespace ada::train
