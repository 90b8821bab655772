// Which tensors and layers are looked at, and in which form they are shown.
#include <algorithm>
#include <cstdlib>
#include <ostream>

#include "core/error.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "core/text.h"
#include "scaling/policies/policies.h"
#include "study/commands.h"
#include "study/inspect/parts.h"

namespace ada::study {
namespace {

using Output = InspectOptions::Output;

// S that the gradients of a file carry: what the user says, else what the file's metadata say of
// the tensor ("scale:NAME.dy", as a run's dumps have it), else the policy's start.
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
    return scaling::CheckedScale(("metadata " + Shown(found->first)).c_str(), scale);
  }
  // Gradients of activations carry a scale, by their names.
  double Of(const TensorEntry& entry) const {
    const bool gradient = entry.name.ends_with(".dy") || entry.name.ends_with(".dx");
    return gradient ? static_cast<double>(Of(entry.name)) : 1;
  }

 private:
  const SafetensorsFile& file_;
  float start_;
  bool from_file_;
};

void ShowCounts(const SafetensorsFile& file, const InspectOptions& options,
                const CarriedScales& carried, std::ostream& out) {
  const bool csv = options.output == Output::kCounts;
  if (csv) out << telemetry::Header<CountRow>() << '\n';
  for (const TensorEntry& entry : file.entries()) {
    if (!GlobMatch(options.tensors, entry.name)) continue;
    if (!IsFloat(entry.dtype)) {
      if (!csv) PrintSkipped(entry, out);
      continue;
    }
    const TensorCount count = CountTensor(file, entry, options.format, carried.Of(entry));
    if (csv)
      out << telemetry::FieldsOf(CountRowOf(entry, options.format, count)).text() << '\n';
    else
      PrintCount(entry, options.format, count, out);
  }
}

void ShowScales(const SafetensorsFile& file, const InspectOptions& options,
                const config::AdaptiveOverrides& adaptive, const CarriedScales& carried,
                std::ostream& out, std::ostream& notes) {
  const bool csv = options.output == Output::kScales;
  const FileLayers found = FindLayers(file, options.tensors);
  if (csv) out << telemetry::Header<MethodRow>() << '\n';
  for (const FileLayer& layer : found.layers) {
    const std::vector<MethodScale> scales =
        ScalesOf(file, layer, adaptive, options.format, carried.Of(layer.name + ".dy"));
    if (scales.empty())
      (csv ? notes : out) << Shown(layer.name)
                          << ": exact_range needs its dx, which the file has not\n";
    if (!csv) PrintScales(layer, scales, out);
    for (const MethodScale& scale : scales)
      if (csv)
        out << telemetry::FieldsOf(MethodRowOf(layer.name, scale, NineDigits, ShortestText)).text()
            << '\n';
  }
  for (const std::string& line : found.left_out) (csv ? notes : out) << line << '\n';
  if (csv && found.layers.empty() && found.left_out.empty())
    notes << options.path << ": no float tensor NAME.dy, so no layer to choose a scale for\n";
}

// A glob that matches nothing is a slip.
void CheckGlob(const SafetensorsFile& file, const std::string& glob) {
  const auto matches = [&](const TensorEntry& entry) { return GlobMatch(glob, entry.name); };
  const auto& entries = file.entries();
  if (entries.empty() || std::any_of(entries.begin(), entries.end(), matches)) return;
  throw ConfigError("--tensors " + glob + ": matches none of the " +
                    std::to_string(entries.size()) + " tensors of " + file.path() +
                    "; the first is " + Shown(entries.front().name));
}

}  // namespace

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
  scaling::CheckedScale("--scale-in", options.scale_in.value_or(start));
  const SafetensorsFile file = SafetensorsFile::Open(options.path);
  const CarriedScales carried(file, options.scale_in, start);
  CheckGlob(file, options.tensors);
  if (options.output == Output::kText) PrintFormat(options.format, out);
  if (options.output != Output::kScales) ShowCounts(file, options, carried, out);
  if (options.output != Output::kCounts) ShowScales(file, options, adaptive, carried, out, notes);
}

}  // namespace ada::study
