// Prints the predictions for photos as text or CSV when they come, or as one JSON document at the
// end. Metrics of segmentation and detection need the predictions of all images, so their rows are
// printed when a split is finished.
#include "run/evaluate/reports.h"

#include <algorithm>
#include <ostream>

#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/metrics/metrics.h"
#include "telemetry/csv.h"
#include "telemetry/progress.h"
#include "telemetry/totals.h"

namespace ada::run {
namespace {

std::string CornersText(const vision::Box& box, const char* between) {
  std::string text;
  for (const float value : {box.x0, box.y0, box.x1, box.y1})
    text += (text.empty() ? "" : between) + NineDigits(static_cast<double>(value));
  return text;
}

constexpr char kMeasuredTestSplit[] = "test";

std::vector<std::int64_t> DimsOf(std::int64_t images, const Shape& output) {
  return {images, output.h, output.w, output.c};
}

}  // namespace

PhotoReport::PhotoReport(const config::Config& config, const PredictOptions& options,
                         const std::vector<std::string>& names, std::ostream& out)
    : detects_(config.task == Task::kDetection),
      draw_(config.detection.draw),
      options_(options),
      names_(names),
      out_(out) {
  if (!options.predictions.empty()) folder_.emplace(config, options.predictions, names);
  if (options.format != PredictFormat::kCsv) return;
  out << (detects_ ? "photo,class,name,score,xmin,ymin,xmax,ymax\n"
                   : "photo,class,name,pixels,share\n");
}

void PhotoReport::Add(const std::string& photo, data::Picture picture,
                      const Prediction& prediction) {
  std::vector<Line> lines = LinesOf(prediction);
  std::stable_sort(lines.begin(), lines.end(),
                   [](const Line& a, const Line& b) { return a.share > b.share; });
  switch (options_.format) {
    case PredictFormat::kText:
      PrintText(photo, lines);
      break;
    case PredictFormat::kCsv:
      PrintCsv(photo, lines);
      break;
    case PredictFormat::kJson:
      AddJson(photo, lines);
      break;
  }
  if (folder_) folder_->Add(TitleOfFile(photo), std::move(picture), prediction);
}

// For segmentation the list has a line for each class up to the largest label, by which pixels are
// counted; classes without a pixel are dropped at the end.
std::vector<PhotoReport::Line> PhotoReport::LinesOf(const Prediction& prediction) const {
  std::vector<Line> lines;
  for (const vision::Detection& found : prediction.boxes)
    if (static_cast<double>(found.score) >= draw_)
      lines.push_back({found.label, static_cast<double>(found.score), 0, found.box});
  for (const std::int32_t label : prediction.labels) {
    for (int next = static_cast<int>(lines.size()); next <= label; ++next)
      lines.push_back({next, 0, 0, {}});
    ++lines[static_cast<std::size_t>(label)].pixels;
  }
  if (detects_) return lines;
  std::erase_if(lines, [](const Line& line) { return line.pixels == 0; });
  for (Line& line : lines)
    line.share = static_cast<double>(line.pixels) / static_cast<double>(prediction.labels.size());
  return lines;
}

std::string PhotoReport::NameOf(int label) const {
  const auto k = static_cast<std::size_t>(label);
  return k < names_.size() ? names_[k] : "";
}

void PhotoReport::PrintText(const std::string& photo, const std::vector<Line>& lines) {
  out_ << Visible(photo) << '\n';
  for (const Line& line : lines) {
    const std::string name =
        NameOf(line.label).empty() ? "class " + std::to_string(line.label) : NameOf(line.label);
    out_ << Formatted("  %6.2f %%  ", 100 * line.share) << Visible(name)
         << (detects_ ? "  " + CornersText(line.box, " ") : "") << '\n';
  }
}

void PhotoReport::PrintCsv(const std::string& photo, const std::vector<Line>& lines) {
  for (const Line& line : lines) {
    out_ << telemetry::CsvField(photo) << ',' << line.label << ','
         << telemetry::CsvField(NameOf(line.label)) << ',';
    if (detects_)
      out_ << NineDigits(line.share) << ',' << CornersText(line.box, ",") << '\n';
    else
      out_ << line.pixels << ',' << NineDigits(line.share) << '\n';
  }
}

// The list is kept until Finish, because JSON is printed as one document.
void PhotoReport::AddJson(const std::string& photo, const std::vector<Line>& lines) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Line& line : lines) {
    nlohmann::ordered_json one = {{"class", line.label}};
    if (!NameOf(line.label).empty()) one["name"] = ValidUtf8(NameOf(line.label));
    if (detects_) {
      one["score"] = line.share;
      one["box"] = {line.box.x0, line.box.y0, line.box.x1, line.box.y1};
    } else {
      one["pixels"] = line.pixels;
      one["share"] = line.share;
    }
    all.push_back(std::move(one));
  }
  list_.push_back({{"photo", ValidUtf8(photo)}, {detects_ ? "boxes" : "classes", std::move(all)}});
}

void PhotoReport::Finish() {
  if (options_.format == PredictFormat::kJson) out_ << list_.dump(2) << '\n';
  if (folder_) folder_->Commit();
}

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
