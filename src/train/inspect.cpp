// Which tensors and layers are looked at, and in which form they are shown.
#include "train/inspect.h"

#include <algorithm>
#include <ostream>

#include "core/error.h"
#include "core/safetensors.h"
#include "core/safetensors_header.h"
#include "core/text.h"
#include "scaling/scale_check.h"
#include "train/float_values.h"
#include "train/inspect_counts.h"
#include "train/inspect_layers.h"
#include "train/inspect_scales.h"
#include "train/inspect_text.h"

namespace ada::train {
namespace {

using Output = InspectOptions::Output;

// S that a tensor carries: gradients of activations do, by their names.
double CarriedScale(const TensorEntry& entry, float scale_in) {
  const bool gradient = entry.name.ends_with(".dy") || entry.name.ends_with(".dx");
  return gradient ? static_cast<double>(scale_in) : 1;
}

void ShowCounts(const SafetensorsFile& file, const InspectOptions& options, float scale_in,
                std::ostream& out) {
  const bool csv = options.output == Output::kCounts;
  if (csv) out << kCountColumns << '\n';
  for (const TensorEntry& entry : file.entries()) {
    if (!GlobMatch(options.tensors, entry.name)) continue;
    if (!IsFloat(entry.dtype)) {
      if (!csv) PrintSkipped(entry, out);
      continue;
    }
    const TensorCount count =
        CountTensor(file, entry, options.format, CarriedScale(entry, scale_in));
    if (csv)
      WriteCountRow(entry, options.format, count, out);
    else
      PrintCount(entry, options.format, count, out);
  }
}

void ShowScales(const SafetensorsFile& file, const InspectOptions& options,
                const config::AdaptiveOverrides& adaptive, float scale_in, std::ostream& out,
                std::ostream& notes) {
  const bool csv = options.output == Output::kScales;
  const FileLayers found = FindLayers(file, options.tensors);
  if (csv) out << kScaleColumns << '\n';
  for (const FileLayer& layer : found.layers) {
    const std::vector<MethodScale> scales =
        ScalesOf(file, layer, adaptive, options.format, scale_in);
    if (scales.empty())
      (csv ? notes : out) << safetensors::Shown(layer.name)
                          << ": exact_range needs its dx, which the file has not\n";
    if (!csv) PrintScales(layer, scales, out);
    for (const MethodScale& scale : scales)
      if (csv) WriteScaleRow(layer.name, scale, out);
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
                    "; the first is " + safetensors::Shown(entries.front().name));
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
  if (adaptive.scaling.policy != config::Policy::kAdaptive)
    throw ConfigError(
        "--set scaling.policy: inspect compares the methods of policy adaptive; leave it out");
  const float scale_in = scaling::CheckedScale(
      "--scale-in", options.scale_in.value_or(adaptive.scaling.init_scale.value_or(1)));
  const SafetensorsFile file = SafetensorsFile::Open(options.path);
  CheckGlob(file, options.tensors);
  if (options.output == Output::kText) PrintFormat(options.format, out);
  if (options.output != Output::kScales) ShowCounts(file, options, scale_in, out);
  if (options.output != Output::kCounts) ShowScales(file, options, adaptive, scale_in, out, notes);
}

}  // namespace ada::train
