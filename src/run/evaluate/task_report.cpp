// Segmentation and detection: metrics need the predictions of all images, so rows are printed when
// a split is finished.
#include <ostream>

#include "error.h"
#include "io/text.h"
#include "run/evaluate/reports.h"
#include "telemetry/csv.h"
#include "telemetry/progress.h"
#include "telemetry/totals.h"

namespace ada::run {
namespace {

constexpr char kMeasuredTestSplit[] = "test";

std::vector<std::int64_t> DimsOf(std::int64_t images, const Shape& output) {
  return {images, output.h, output.w, output.c};
}

}  // namespace

// The folder of split test is made at once, so that one which cannot be made is refused before the
// evaluation.
TaskReport::TaskReport(const config::Config& config, const RunData& data, Evaluator& evaluator,
                       const EvaluateOptions& options, std::ostream& out, telemetry::Log& log)
    : config_(config),
      data_(data),
      evaluator_(evaluator),
      options_(options),
      out_(out),
      log_(log),
      names_(NamesOfClasses(config, data)) {
  const auto& outputs = evaluator.graph().outputs();
  if (!options.outputs.empty() && outputs.size() != 1)
    throw ConfigError(
        "--outputs: a network for detection has two outputs, and the file holds one; "
        "--predictions FOLDER writes its boxes");
  if (!options.outputs.empty())
    outputs_.emplace(options.outputs, DimsOf(data.test.images(), outputs.front().shape));
  if (!options.predictions.empty()) FolderOf(kMeasuredTestSplit);
  PrintHead();
}

void TaskReport::PrintHead() const {
  const bool segments = config_.task == Task::kSegmentation;
  if (options_.per_class)
    out_ << (segments ? "split,class,name,pixels,iou,accuracy\n"
                      : "split,class,name,objects,ap_07,ap\n");
  else
    out_ << (segments ? "split,images,loss,miou,mean_class_accuracy,pixel_accuracy\n"
                      : "split,images,loss,map_07,map\n");
}

PredictionFolder& TaskReport::FolderOf(const std::string& split) {
  const bool test = split == kMeasuredTestSplit;
  const std::string folder = options_.predictions + (test ? "" : "/" + split);
  return folders_.try_emplace(split, config_, folder, names_).first->second;
}

// Pictures are read a second time, in their own size, where they are drawn on: the network had them
// resized.
void TaskReport::Write(const std::string& split, const data::Dataset& dataset) {
  if (dataset.images() == 0) return;
  const std::unique_ptr<Metrics> metrics =
      MakeMetrics(config_, data_.image, evaluator_.graph().classes(), dataset, names_);
  PredictionFolder* folder = options_.predictions.empty() ? nullptr : &FolderOf(split);
  const bool gives_outputs = outputs_ && split == kMeasuredTestSplit;
  telemetry::EvaluationProgress progress(log_, options_.progress, "evaluating " + split,
                                         dataset.images());
  EvaluationCallbacks callbacks;
  callbacks.metrics = metrics.get();
  callbacks.after_batch = [&](std::int64_t images) { progress.Update(images); };
  if (folder != nullptr || gives_outputs)
    callbacks.prediction = [&](std::int64_t image, const Prediction& prediction,
                               const std::vector<const float*>& outputs) {
      if (gives_outputs) {
        const auto values =
            static_cast<std::size_t>(evaluator_.graph().outputs().front().shape.per_image());
        outputs_->Add(image, {outputs.front(), values});
      }
      if (folder == nullptr) return;
      const std::int64_t number = dataset.NumberInFiles(image);
      folder->Add(dataset.store->TitleOf(number), dataset.store->Read(number, data::WholeOf),
                  prediction);
    };
  const EvaluationResult result =
      evaluator_.Run(dataset, EvaluationLoader(config_, data_), callbacks);
  for (const data::BrokenImage& image : result.broken)
    log_.Warning(data::LeftOutText(split, image));
  Print(split, result, metrics->Finish());
}

void TaskReport::Print(const std::string& split, const EvaluationResult& result,
                       const MetricsResult& metrics_result) const {
  if (!options_.per_class) {
    out_ << split << ',' << result.images << ',' << NineDigits(result.loss);
    for (const telemetry::Metric& metric : telemetry::MetricsOf(metrics_result.all()))
      out_ << ',' << NineDigits(metric.value);
    out_ << '\n';
    return;
  }
  // The last row is that of all classes.
  for (std::size_t k = 0; k + 1 < metrics_result.classes.size(); ++k) {
    const telemetry::ClassRow& row = metrics_result.classes[k];
    out_ << split << ',' << k << ',' << telemetry::CsvField(row.name) << ',' << row.count << ',';
    if (row.iou)
      out_ << NineDigits(*row.iou) << ',' << NineDigits(row.accuracy.value_or(NAN)) << '\n';
    else
      out_ << NineDigits(row.ap_07.value_or(NAN)) << ',' << NineDigits(row.ap.value_or(NAN))
           << '\n';
  }
}

void TaskReport::Finish() {
  for (auto& [split, folder] : folders_) folder.Commit();
  if (outputs_) outputs_->Commit();
}

}  // namespace ada::run
