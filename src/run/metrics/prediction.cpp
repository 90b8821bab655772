// Makes class maps and boxes from a network's outputs, in the pixels of the image that was shown,
// and draws them on their pictures, which are written as PNG files one at a time.
#include "run/metrics/prediction.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "data/images/picture.h"
#include "data/images/resize.h"
#include "error.h"
#include "graph/network/shapes.h"
#include "io/text.h"
#include "run/facts/data_facts.h"
#include "telemetry/csv.h"
#include "vision/draw.h"

namespace ada::run {
namespace {

// The largest, of equals the first; NaN is below all.
std::int32_t LargestOf(const float* logits, int classes) {
  std::int32_t best = 0;
  for (std::int32_t k = 1; k < classes; ++k)
    if (logits[k] > logits[best] || (std::isnan(logits[best]) && !std::isnan(logits[k]))) best = k;
  return best;
}

// Grids that are given stand for themselves; else a preset, or the network of the zoo, has them.
vision::DefaultBoxSpec BoxesOf(const config::Config& config) {
  const config::DefaultBoxesConfig& boxes = config.detection.boxes;
  if (boxes.grids.empty())
    return vision::DefaultBoxesOf(boxes.preset.empty() ? config.model.zoo : boxes.preset);
  vision::DefaultBoxSpec spec;
  spec.grids = boxes.grids;
  spec.steps = boxes.steps;
  spec.sizes = boxes.sizes;
  spec.aspects = boxes.aspect_ratios;
  return spec;
}

std::string SizeText(std::int64_t width, std::int64_t height) {
  return data::SizeText({static_cast<int>(height), static_cast<int>(width)});
}

[[noreturn]] void FailBoxes(const config::Config& config, const std::string& problem) {
  throw ConfigError(
      ToString(config.detection.where.file.empty() ? config.model.where : config.detection.where) +
      ": detection.boxes: " + problem);
}

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

std::shared_ptr<const vision::BoxCoder> MakeCoder(const config::Config& config,
                                                  const Shape& image) {
  if (config.task != Task::kDetection) return nullptr;
  const auto fail = [&config](const std::string& problem) { FailBoxes(config, problem); };
  vision::DefaultBoxSpec spec = BoxesOf(config);
  if (image.h != image.w)
    fail("the default boxes are of square images, and those of this run are " +
         SizeText(image.w, image.h) + "; set data.resize: [SIDE, SIDE]");
  if (spec.input == 0) spec.input = static_cast<int>(image.h);
  if (spec.input != image.h)
    fail("these default boxes are of images of " + SizeText(spec.input, spec.input) +
         ", and those of this run are " + SizeText(image.w, image.h) + "; set data.resize: [" +
         std::to_string(spec.input) + ", " + std::to_string(spec.input) + "]");
  spec.center_variance = config.detection.variances.at(0);
  spec.size_variance = config.detection.variances.at(1);
  return std::make_shared<vision::BoxCoder>(spec);
}

void CheckBoxes(const config::Config& config, const Shape& image) {
  const std::shared_ptr<const vision::BoxCoder> coder = MakeCoder(config, image);
  if (!coder) return;
  const graph::Network network = graph::Resolve(config.model, image, config.task);
  const std::int64_t given = network.shape(network.outputs.front()).w;
  if (given != coder->boxes())
    FailBoxes(config, "these are " + std::to_string(coder->boxes()) +
                          " default boxes, and the network gives " + std::to_string(given) +
                          "; a head has 4 channels (or the classes and the background) for each "
                          "box of a place, 2 + 2 aspect ratios of them");
}

PredictionMaker::PredictionMaker(const config::Config& config, const Shape& image, int classes)
    : task_(config.task), image_(image), classes_(classes), coder_(MakeCoder(config, image)) {
  decode_.nms = config.detection.nms;
  decode_.score = static_cast<float>(config.detection.score);
  decode_.candidates = config.detection.candidates;
  decode_.most = config.detection.most;
}

// Boxes are decoded in the pixels of the network's input, and stretched in both directions to the
// image's own.
Prediction PredictionMaker::Make(const std::vector<const float*>& outputs,
                                 data::PictureSize size) const {
  Prediction prediction;
  prediction.size = size;
  if (task_ == Task::kSegmentation) prediction.labels = Labels(outputs.at(0), size);
  if (task_ != Task::kDetection) return prediction;
  prediction.boxes = coder_->Decode(outputs.at(0), outputs.at(1), classes_, decode_);
  const auto factor = [](int to, std::int64_t from) {
    return static_cast<float>(static_cast<double>(to) / static_cast<double>(from));
  };
  for (vision::Detection& found : prediction.boxes)
    found.box =
        vision::Scaled(found.box, factor(size.height, image_.h), factor(size.width, image_.w));
  return prediction;
}

// The class is chosen before the size is changed: labels cannot be interpolated.
std::vector<std::int32_t> PredictionMaker::Labels(const float* logits,
                                                  data::PictureSize size) const {
  std::vector<std::int32_t> seen(static_cast<std::size_t>(image_.h * image_.w));
  for (std::size_t i = 0; i < seen.size(); ++i)
    seen[i] = LargestOf(logits + i * static_cast<std::size_t>(classes_), classes_);
  if (size.height == image_.h && size.width == image_.w) return seen;
  std::vector<std::int32_t> labels;
  labels.reserve(static_cast<std::size_t>(size.height) * static_cast<std::size_t>(size.width));
  const int height = static_cast<int>(image_.h), width = static_cast<int>(image_.w);
  for (int y = 0; y < size.height; ++y) {
    const std::int64_t row = data::NearestPlace(y, height, size.height) * image_.w;
    for (int x = 0; x < size.width; ++x)
      labels.push_back(
          seen[static_cast<std::size_t>(row + data::NearestPlace(x, width, size.width))]);
  }
  return labels;
}

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
