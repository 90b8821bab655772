// Draws predictions on their pictures and writes them as PNG files, one at a time.
#include <filesystem>

#include "data/images/picture.h"
#include "error.h"
#include "io/text.h"
#include "run/facts/data_facts.h"
#include "run/metrics/prediction.h"
#include "telemetry/csv.h"
#include "vision/draw.h"

namespace ada::run {
namespace {

vision::RgbView ViewOf(data::Picture& picture) {
  ADA_CHECK(picture.channels == 3);
  return {picture.pixels.data(), picture.height, picture.width};
}

// A picture of one channel in red, green and blue.
data::Picture InRgb(data::Picture picture) {
  if (picture.channels == 3) return picture;
  data::Picture rgb{picture.height, picture.width, 3, {}};
  for (std::size_t i = 0; i < picture.pixels.size(); i += picture.channels)
    rgb.pixels.insert(rgb.pixels.end(), 3, picture.pixels[i]);
  return rgb;
}

// Label 255 is the one that is passed over; it is black.
std::vector<data::PaletteColor> LabelPalette() {
  std::vector<data::PaletteColor> colors;
  for (int label = 0; label <= 255; ++label) {
    const vision::Rgb color = label == 255 ? vision::Rgb{} : vision::LabelColor(label);
    colors.push_back({color.r, color.g, color.b});
  }
  return colors;
}

}  // namespace

PredictionFolder::PredictionFolder(const config::Config& config, std::string folder,
                                   const std::vector<std::string>& names)
    : task_(config.task),
      draw_(static_cast<float>(config.detection.draw)),
      folder_(std::move(folder)),
      names_(names) {
  CreateFolders(folder_ + "/overlays");
  if (task_ != Task::kDetection) return;
  detections_.emplace(folder_ + "/detections.csv");
  detections_->Write("image,label,score,xmin,ymin,xmax,ymax\n");
}

// The picture is drawn on and written in one go, so only one is in memory.
void PredictionFolder::Add(const std::string& title, data::Picture picture,
                           const Prediction& prediction) {
  picture = InRgb(std::move(picture));
  if (task_ == Task::kDetection) {
    AddBoxes(title, picture, prediction);
  } else {
    data::Picture labels{prediction.size.height, prediction.size.width, 1, {}};
    labels.pixels.assign(prediction.labels.begin(), prediction.labels.end());
    data::WritePalettePng(folder_ + "/" + title + ".png", labels, LabelPalette());
    vision::DrawLabels(ViewOf(picture), prediction.labels);
  }
  data::WritePng(folder_ + "/overlays/" + title + ".png", picture);
}

void PredictionFolder::AddBoxes(const std::string& title, data::Picture& picture,
                                const Prediction& prediction) {
  std::string rows;
  for (const vision::Detection& found : prediction.boxes) {
    rows += telemetry::CsvField(title) + ',' + telemetry::CsvField(ClassName(names_, found.label));
    for (const float value : {found.score, found.box.x0, found.box.y0, found.box.x1, found.box.y1})
      rows += ',' + NineDigits(static_cast<double>(value));
    rows += '\n';
  }
  detections_->Write(rows);
  // The likeliest last, on top.
  for (auto found = prediction.boxes.rbegin(); found != prediction.boxes.rend(); ++found)
    if (found->score >= draw_)
      vision::DrawLabeledBox(
          ViewOf(picture), found->box, found->label,
          ClassName(names_, found->label) + Formatted(" %.2f", static_cast<double>(found->score)));
}

void PredictionFolder::Commit() {
  if (detections_) detections_->Commit();
}

std::string TitleOfFile(const std::string& path) {
  return std::filesystem::path(path).stem().string();
}

}  // namespace ada::run
