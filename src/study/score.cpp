// score: metrics of detections and label images. Average precision of detections is that of PASCAL
// VOC, with eleven points (2007) and by the area under the curve (from 2010). IoU and accuracies of
// label images are those of the papers on CamVid, over all pixels of all images together
// (vision/metrics.h).
#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>
#include <set>
#include <unordered_map>

#include "data/detection/voc_files.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/text_table.h"
#include "vision/metrics.h"

namespace ada::study {
namespace {

// --- Detections ---

// A row of the CSV; the last is called `map`.
struct VocScoreRow {
  std::string name;
  double ap_07 = NAN, ap = NAN;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<VocScoreRow>>({
        {"class", &VocScoreRow::name},
        {"ap_07", &VocScoreRow::ap_07, kExact | kPlain},
        {"ap", &VocScoreRow::ap, kExact | kPlain},
    });
  }
};

// A box by the name of its class, in a file's order.
struct NamedDetection {
  std::string label;
  vision::Box box;
  double score = 0;
};
struct JudgedImage {
  std::vector<data::AnnotatedObject> ground_truth;
  std::vector<NamedDetection> found;
};

// The images of a split in the order of its lists, on which that of equal scores depends.
struct JudgedImages {
  std::vector<JudgedImage> images;
  std::unordered_map<std::string, std::size_t> places;  // by name, as CSV files have it
};

JudgedImages ReadGroundTruth(const VocScoreOptions& options, std::ostream& notes) {
  const std::vector<std::string> years = data::YearFolders(options.folders);
  std::string note;
  JudgedImages judged;
  for (const data::ListedImage& listed : data::ListImages(years, options.split, &note)) {
    // A CSV is UTF-8; a name that is not is found by the text that a CSV of this program has for
    // it.
    judged.places.emplace(ValidUtf8(listed.name), judged.images.size());
    judged.images.push_back({data::ReadAnnotation(listed.annotation).objects, {}});
  }
  if (!note.empty()) notes << note << '\n';
  return judged;
}

void ReadDetections(const VocScoreOptions& options, JudgedImages& judged, std::ostream& notes) {
  telemetry::CsvReader file(options.detections, telemetry::LastRow::kMayLackLineEnd);
  const std::size_t image = file.Column("image"), label = file.Column("label"),
                    score = file.Column("score"), xmin = file.Column("xmin"),
                    ymin = file.Column("ymin"), xmax = file.Column("xmax"),
                    ymax = file.Column("ymax");
  std::int64_t not_finite = 0;
  while (file.Next()) {
    const auto place = judged.places.find(file.Text(image));
    if (place == judged.places.end()) {
      file.FailAt(image, ("a name of the list " + options.split + " in ImageSets/Main").c_str());
    }
    // Boxes are fp32, as predictions are.
    const auto corner = [&](std::size_t column) { return static_cast<float>(file.Number(column)); };
    const NamedDetection found{file.Text(label),
                               {corner(ymin), corner(xmin), corner(ymax), corner(xmax)},
                               file.Number(score)};
    const vision::Box& b = found.box;
    // They are kept: leaving them out would change the score without a word.
    if (!std::isfinite(b.y0 + b.x0 + b.y1 + b.x1) || !std::isfinite(found.score)) ++not_finite;
    judged.images[place->second].found.push_back(found);
  }
  if (not_finite > 0) {
    notes << options.detections << ": " << Counted(not_finite, "detection")
          << " with inf or nan, judged as the rest\n";
  }
}

// The classes' names in byte order.
// Detections may have classes that no label has; they get a row too.
std::vector<std::string> ClassesOf(const JudgedImages& judged) {
  std::set<std::string> names;
  for (const JudgedImage& image : judged.images) {
    for (const data::AnnotatedObject& object : image.ground_truth) names.insert(object.name);
    for (const NamedDetection& found : image.found) names.insert(found.label);
  }
  return {names.begin(), names.end()};
}

std::vector<vision::ClassPrecision> JudgeAll(const JudgedImages& judged,
                                             const std::vector<std::string>& names,
                                             double overlap) {
  std::map<std::string, int> labels;
  for (const std::string& name : names) labels.emplace(name, static_cast<int>(labels.size()));
  vision::AveragePrecision precision(static_cast<int>(names.size()), static_cast<float>(overlap));
  for (const JudgedImage& image : judged.images) {
    std::vector<vision::LabeledBox> ground_truth;
    for (const data::AnnotatedObject& object : image.ground_truth)
      ground_truth.push_back({object.box, labels.at(object.name), object.difficult});
    std::vector<vision::Detection> found;
    std::vector<double> scores;
    for (const NamedDetection& one : image.found) {
      found.push_back({one.box, labels.at(one.label), 0});
      scores.push_back(one.score);
    }
    precision.Add(ground_truth, found, scores);
  }
  return precision.Judge();
}

void PrintScores(const std::vector<std::string>& names,
                 const std::vector<vision::ClassPrecision>& classes, std::size_t images,
                 std::ostream& out) {
  TextTable table({"class", "objects", "detections", "ap_07", "ap"});
  std::int64_t objects = 0, detections = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const vision::ClassPrecision& c = classes[i];
    table.Row({names[i], std::to_string(c.positives), std::to_string(c.detections),
               ShareText(c.ap_07), ShareText(c.ap)});
    objects += c.positives;
    detections += c.detections;
  }
  table.Row({"map", std::to_string(objects), std::to_string(detections),
             ShareText(vision::MeanAp07(classes)), ShareText(vision::MeanAp(classes))});
  table.Print(out, kTerminalWidth);
  out << Counted(static_cast<std::int64_t>(images), "image")
      << "; objects: without the difficult ones\n";
}

// --- Label images ---

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

void ScoreVoc(const VocScoreOptions& options, std::ostream& out, std::ostream& notes) {
  JudgedImages judged = ReadGroundTruth(options, notes);
  ReadDetections(options, judged, notes);
  const std::vector<std::string> names = ClassesOf(judged);
  const std::vector<vision::ClassPrecision> classes = JudgeAll(judged, names, options.overlap);
  if (options.view == View::kTable) return PrintScores(names, classes, judged.images.size(), out);
  std::vector<VocScoreRow> rows;
  for (std::size_t i = 0; i < names.size(); ++i)
    rows.push_back({names[i], classes[i].ap_07, classes[i].ap});
  rows.push_back({"map", vision::MeanAp07(classes), vision::MeanAp(classes)});
  PrintCsv(rows, out);
}

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
