// Prints the predictions for photos as text or CSV when they come, or as one JSON document at the
// end.
#include <algorithm>
#include <ostream>

#include "io/shown_text.h"
#include "io/text.h"
#include "run/evaluate/reports.h"
#include "telemetry/csv.h"

namespace ada::run {
namespace {

std::string CornersText(const vision::Box& box, const char* between) {
  std::string text;
  for (const float value : {box.x0, box.y0, box.x1, box.y1})
    text += (text.empty() ? "" : between) + NineDigits(static_cast<double>(value));
  return text;
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

}  // namespace ada::run
