// Which tensors and layers are looked at, and in which form they are shown.
// inspect reads a safetensors file, any file with names of a run's dump (NAME.x, NAME.dy ...) or
// others.
#include <cstdlib>
#include <ostream>
#include <type_traits>

#include "error.h"
#include "io/tensor_files/safetensors.h"
#include "io/tensor_files/safetensors_header.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/convert/block_tensor.h"
#include "study/inspect/inspected.h"
#include "study/output.h"

namespace ada::study {
namespace {

using Output = InspectOptions::Output;

// S that the gradients of a file carry: the user's, or that in the file's
// metadata ("scale:NAME.dy", as in a run's dumps), or the policy's start. The
// metadata have the scale of each gradient separately, because layers of an
// adaptive run differ.
class CarriedScales {
 public:
  CarriedScales(const SafetensorsFile& file, std::optional<double> said, double start)
      : file_(file), start_(scaling::CheckedScale("--scale-in", said.value_or(start))) {
    from_file_ = !said.has_value();
  }
  float Of(const std::string& gradient) const {
    const auto found = file_.metadata().find("scale:" + gradient);
    if (!from_file_ || found == file_.metadata().end()) return start_;
    char* end = nullptr;
    const double scale = std::strtod(found->second.c_str(), &end);
    if (end == found->second.c_str() || *end != '\0')
      throw DataError(file_.path() + ": metadata " + Shown(found->first) +
                      ": expected a number, found " + Shown(found->second));
    // A step that was skipped may have had a scale of 0, inf or NaN.
    try {
      return scaling::CheckedScale(("metadata " + Shown(found->first)).c_str(), scale);
    } catch (const ConfigError& error) {
      throw DataError(file_.path() + ": " + error.what() + "; --scale-in gives one that is");
    }
  }
  double Of(const TensorEntry& entry) const {
    return CarriesScale(entry.name) ? static_cast<double>(Of(entry.name)) : 1;
  }

 private:
  const SafetensorsFile& file_;
  float start_;
  bool from_file_;
};

// The layers of a file, and notes about those that are left out. Decides for all layers at once;
// the views only print.
class Layers {
 public:
  Layers(const SafetensorsFile& file, const InspectOptions& options, const NumberFormat& format,
         const config::AdaptiveOverrides& adaptive, const CarriedScales& carried)
      : found_(FindLayers(file, options.tensors)) {
    std::string assumed;
    for (const FileLayer& layer : found_.layers) {
      LayerLine line{&layer,
                     ScalesOf(file, layer, adaptive, format, carried.Of(layer.name + ".dy"))};
      if (line.scales.empty())
        notes_.push_back(Shown(layer.name) + ": exact_range needs its dx, which the file has not");
      else
        lines_.push_back(std::move(line));
      if (!layer.geometry_known) assumed += (assumed.empty() ? "" : ", ") + Shown(layer.name);
    }
    notes_.insert(notes_.end(), found_.left_out.begin(), found_.left_out.end());
    if (!assumed.empty())
      notes_.push_back(assumed + ": stride and groups taken as 1: the file has neither x nor dx");
  }

  const std::vector<LayerLine>& lines() const { return lines_; }
  const std::vector<std::string>& notes() const { return notes_; }
  bool none() const { return lines_.empty() && notes_.empty() && found_.passing == 0; }
  std::size_t passing() const { return found_.passing; }

 private:
  const FileLayers found_;
  std::vector<LayerLine> lines_;
  std::vector<std::string> notes_;
};

// A row of `--csv counts` for each tensor, which `row_of` makes.
template <class RowOf>
void ShowCsvCounts(const SafetensorsFile& file, const InspectOptions& options, const RowOf& row_of,
                   std::ostream& out) {
  PrintCsvHeader<std::invoke_result_t<RowOf, const TensorEntry&>>(out);
  EachShown(file, options, [&](const TensorEntry& entry) { PrintCsvRow(row_of(entry), out); });
}

void ShowCsvScales(const Layers& layers, const std::string& path, std::ostream& out,
                   std::ostream& notes) {
  PrintCsvHeader<MethodRow>(out);
  for (const LayerLine& line : layers.lines())
    for (const MethodScale& scale : line.scales)
      PrintCsvRow(MethodRowOf(line.layer->name, scale), out);
  for (const std::string& note : layers.notes()) notes << note << '\n';
  if (layers.none())
    notes << path << ": no float tensor NAME.dy, so no layer to choose a scale for\n";
}

// The rows of both CSVs. layers: null of a block-scaled format, for which adaptive chooses nothing.
template <class RowOf>
void ShowJson(const SafetensorsFile& file, const InspectOptions& options, const RowOf& row_of,
              const Layers* layers, std::ostream& out) {
  OrderedJson json = CommandJson("inspect");
  json["file"] = options.path;
  json["format"] = FormatName(options.format);
  json["tensors"] = OrderedJson::array();
  EachShown(file, options,
            [&](const TensorEntry& entry) { json["tensors"].push_back(RowJson(row_of(entry))); });
  json["scales"] = OrderedJson::array();
  json["notes"] = OrderedJson::array();
  if (layers != nullptr) {
    for (const LayerLine& line : layers->lines())
      for (const MethodScale& scale : line.scales)
        json["scales"].push_back(RowJson(MethodRowOf(line.layer->name, scale)));
    json["notes"] = layers->notes();
  }
  PrintJson(json, out);
}

// One tensor at a time is in memory; of the others only the figures stay.
template <class RowOf>
void ShowBlockText(const SafetensorsFile& file, const InspectOptions& options,
                   const BlockFormat& format, const RowOf& row_of, std::ostream& out) {
  const bool all = options.output == Output::kAll;
  PrintBlockFormat(format, out);
  std::vector<BlockCountRow> rows;
  std::vector<const TensorEntry*> skipped;
  const auto take = [&](const TensorEntry& entry) {
    rows.push_back(row_of(entry));
    if (all) PrintBlockCount(entry, rows.back(), out);
  };
  EachShown(file, options, take, [&](const TensorEntry& entry) { skipped.push_back(&entry); });
  if (!all) PrintBlockTable(std::move(rows), out);
  for (const TensorEntry* entry : skipped) PrintSkipped(*entry, out);
  if (!all) out << "--all: why values are lost, and the spread of the scales\n";
}

// Reads each tensor once; the short view keeps its counts to sort them, that of --all prints at
// once.
void ShowText(const SafetensorsFile& file, const InspectOptions& options,
              const NumberFormat& format, const Layers& layers, const CarriedScales& carried,
              std::ostream& out) {
  const bool all = options.output == Output::kAll;
  PrintFormat(format, out);
  if (all) PrintMarks(out);
  std::vector<CountRow> rows;
  std::vector<const TensorEntry*> skipped;
  const auto take = [&](const TensorEntry& entry) {
    const TensorCount count = CountTensor(file, entry, format, carried.Of(entry));
    if (all) PrintCount(entry, format, count, out);
    rows.push_back(CountRowOf(entry, format, count));
  };
  EachShown(file, options, take, [&](const TensorEntry& entry) {
    all ? PrintSkipped(entry, out) : skipped.push_back(&entry);
  });
  if (!all) {
    PrintTensors(std::move(rows), out);
    for (const TensorEntry* entry : skipped) PrintSkipped(*entry, out);
    PrintLayers(layers.lines(), out);
  } else {
    for (const LayerLine& line : layers.lines()) PrintScales(*line.layer, line.scales, out);
  }
  for (const std::string& note : layers.notes()) out << note << '\n';
  if (layers.passing() > 0)
    out << Counted(static_cast<std::int64_t>(layers.passing()), "layer")
        << (layers.passing() == 1 ? " hands" : " hand")
        << " on the scale that comes: none is chosen\n";
  if (!all) out << "--all: histograms, moments, and the stages of each decision\n";
}

// Throws ConfigError for what `inspect` cannot do with a block-scaled format, and for an axis with
// a plain one.
void CheckBlockOptions(const InspectOptions& options) {
  const std::string name = FormatName(options.format);
  if (!std::holds_alternative<BlockFormat>(options.format)) {
    if (options.axis)
      throw ConfigError("--axis: " + name +
                        " has no scales of blocks; expected a block-scaled --format");
    return;
  }
  if (options.output == InspectOptions::Output::kScales)
    throw ConfigError("--csv scales: adaptive chooses scales for plain formats, and " + name +
                      " has scales of its own; expected --csv counts");
  // Refused rather than ignored: the user asked for something that is not shown.
  if (!options.overrides.empty())
    throw ConfigError("--set " + options.overrides.front().first +
                      ": changes what adaptive chooses, which is not shown for " + name +
                      "; leave it out");
}

}  // namespace

bool CarriesScale(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  return dot != std::string::npos && CarriesS(std::string_view(name).substr(dot + 1));
}

InspectOptions::Output ParseInspectOutput(const std::string& word) {
  if (word == "text") return Output::kText;
  if (word == "counts") return Output::kCounts;
  if (word == "scales") return Output::kScales;
  throw ConfigError("--csv " + word + ": expected counts or scales");
}

void Inspect(const InspectOptions& options, std::ostream& out, std::ostream& notes) {
  const config::AdaptiveOverrides adaptive = config::ReadAdaptive(options.overrides);
  if (adaptive.scaling.policy != "adaptive")
    throw ConfigError(
        "--set scaling.policy: inspect compares the methods of policy adaptive; leave it out");
  const double start = adaptive.scaling.init_scale.value_or(1);
  // Checked before the file is opened, so that a slip in an option is told first.
  scaling::CheckedScale("--scale-in", options.scale_in.value_or(start));
  CheckBlockOptions(options);
  const SafetensorsFile file = SafetensorsFile::Open(options.path);
  const CarriedScales carried(file, options.scale_in, start);
  CheckTensorsGlob(file, options.tensors);
  if (const auto* blocks = std::get_if<BlockFormat>(&options.format)) {
    const auto row_of = [&](const TensorEntry& entry) {
      return BlockCountRowOf(file, entry, *blocks, options.axis, carried.Of(entry));
    };
    if (options.output == Output::kCounts) return ShowCsvCounts(file, options, row_of, out);
    if (options.output == Output::kJson) return ShowJson(file, options, row_of, nullptr, out);
    return ShowBlockText(file, options, *blocks, row_of, out);
  }
  const NumberFormat& format = std::get<NumberFormat>(options.format);
  const auto row_of = [&](const TensorEntry& entry) {
    return CountRowOf(entry, format, CountTensor(file, entry, format, carried.Of(entry)));
  };
  if (options.output == Output::kCounts) return ShowCsvCounts(file, options, row_of, out);
  // Reads and decides; not needed for counts.
  const Layers layers(file, options, format, adaptive, carried);
  if (options.output == Output::kJson)
    ShowJson(file, options, row_of, &layers, out);
  else if (options.output == Output::kScales)
    ShowCsvScales(layers, options.path, out, notes);
  else
    ShowText(file, options, format, layers, carried, out);
}

}  // namespace ada::study
