// score of label images: IoU and accuracies as the papers on CamVid compute them, over all pixels
// of all images together (vision/metrics.h).
#include <algorithm>
#include <ostream>

#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"
#include "io/text.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/text_table.h"
#include "vision/metrics.h"

namespace ada::study {
namespace {

constexpr char kEnding[] = ".png";

// A row of the CSV: a class, or `all`.
struct SegmentationScoreRow {
  std::string name;
  // Nothing: not of this row.
  std::optional<double> iou, accuracy, mean_iou, pixel_accuracy, mean_accuracy;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<SegmentationScoreRow>>({
        {"class", &SegmentationScoreRow::name},
        {"iou", &SegmentationScoreRow::iou, kExact | kPlain},
        {"class_accuracy", &SegmentationScoreRow::accuracy, kExact | kPlain},
        {"miou", &SegmentationScoreRow::mean_iou, kExact | kPlain},
        {"pixel_accuracy", &SegmentationScoreRow::pixel_accuracy, kExact | kPlain},
        {"mean_class_accuracy", &SegmentationScoreRow::mean_accuracy, kExact | kPlain},
    });
  }
};

// The names of a folder's PNG files, in byte order.
// Hidden files are passed over: some systems leave copies of metadata in folders.
std::vector<std::string> PngNames(const std::string& folder) {
  if (!IsDataFolder(folder))
    throw DataError(folder + ": is no folder; expected one with label images (PNG)");
  std::vector<std::string> names;
  for (const std::string& name : ListDataFolder(folder)) {
    if (name.ends_with(kEnding) && !name.starts_with('.')) names.push_back(name);
  }
  if (names.empty()) throw DataError(folder + ": has no " + kEnding + " files to judge");
  std::sort(names.begin(), names.end());
  return names;
}

// Throws DataError where a label image has no prediction.
void ExpectPredictions(const SegmentationScoreOptions& options,
                       const std::vector<std::string>& labels,
                       const std::vector<std::string>& predictions, std::ostream& notes) {
  std::vector<std::string> missing, others;
  std::set_difference(labels.begin(), labels.end(), predictions.begin(), predictions.end(),
                      std::back_inserter(missing));
  std::set_difference(predictions.begin(), predictions.end(), labels.begin(), labels.end(),
                      std::back_inserter(others));
  if (!missing.empty()) {
    // A mean over fewer images than the data set has would look better or worse than it is.
    throw DataError(options.predictions + ": has no prediction for " +
                    Counted(std::ssize(missing), "label image") + " of " + options.labels + ": " +
                    FirstNames(missing, 3));
  }
  if (!others.empty()) {
    notes << options.predictions << ": " << Counted(std::ssize(others), "file")
          << " without a label image, not judged: " << FirstNames(others, 3) << '\n';
  }
}

// Counts the pixels of one image.
void JudgeImage(const SegmentationScoreOptions& options, const std::string& name,
                vision::Confusion& confusion) {
  const std::string label_path = options.labels + "/" + name;
  const std::string prediction_path = options.predictions + "/" + name;
  const data::Picture labels = data::ReadLabelPng(label_path);
  const data::Picture prediction = data::ReadLabelPng(prediction_path);
  if (!(labels.size() == prediction.size())) {
    throw DataError(prediction_path + ": has " + SizeText(prediction.size()) + ", " + label_path +
                    " has " + SizeText(labels.size()) + "; expected the same size");
  }
  std::vector<std::int32_t> ground_truth(labels.pixels.begin(), labels.pixels.end());
  const std::vector<std::int32_t> found(prediction.pixels.begin(), prediction.pixels.end());
  if (options.ignored) std::replace(ground_truth.begin(), ground_truth.end(), *options.ignored, -1);
  // Labels of -1 are passed over. Classes grow with the largest label seen.
  confusion.Add(ground_truth, found);
}

void WriteCsv(const vision::Confusion& confusion, std::ostream& out) {
  std::vector<SegmentationScoreRow> rows;
  for (int c = 0; c < confusion.classes(); ++c)
    rows.push_back({std::to_string(c), confusion.Iou(c), confusion.Accuracy(c), {}, {}, {}});
  rows.push_back({"all",
                  {},
                  {},
                  confusion.MeanIou(),
                  confusion.PixelAccuracy(),
                  confusion.MeanClassAccuracy()});
  PrintCsv(rows, out);
}

void PrintTable(const vision::Confusion& confusion, std::size_t images, std::ostream& out) {
  TextTable table({"class", "pixels", "iou", "accuracy"});
  for (int c = 0; c < confusion.classes(); ++c) {
    table.Row({std::to_string(c), std::to_string(confusion.PixelsOf(c)),
               ShareText(confusion.Iou(c)), ShareText(confusion.Accuracy(c))});
  }
  table.Row({"all", std::to_string(confusion.Pixels()), ShareText(confusion.MeanIou()),
             ShareText(confusion.MeanClassAccuracy())});
  table.Print(out, kTerminalWidth);
  out << Counted(static_cast<std::int64_t>(images), "image")
      << "; all: the classes' means; of all pixels " << ShareText(confusion.PixelAccuracy())
      << " are right\n";
}

}  // namespace

void ScoreSegmentation(const SegmentationScoreOptions& options, std::ostream& out,
                       std::ostream& notes) {
  const std::vector<std::string> labels = PngNames(options.labels);
  ExpectPredictions(options, labels, PngNames(options.predictions), notes);
  vision::Confusion confusion;
  for (const std::string& name : labels) JudgeImage(options, name, confusion);
  if (options.view == View::kTable) {
    PrintTable(confusion, labels.size(), out);
  } else {
    WriteCsv(confusion, out);
  }
}

}  // namespace ada::study
