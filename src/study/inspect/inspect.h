// `ada-train inspect`: what a number format keeps of the tensors of a safetensors file, and what
// the methods of `adaptive` would choose for the layers whose gradients lie in it. Trains nothing.
#pragma once
#include <iosfwd>
#include <optional>
#include <string>

#include "config/load.h"
#include "core/number_format.h"

namespace ada::study {

struct InspectOptions {
  enum class Output { kText, kCounts, kScales };
  std::string path;
  std::string tensors = "*";  // glob: tensors that are counted, layers by the name of their dy
  NumberFormat format = kFp16;
  // S that NAME.dy and NAME.dx carry; unset: what the file's metadata say ("scale:NAME.dy"), else
  // scaling.init_scale, 1.
  std::optional<double> scale_in;
  config::Overrides overrides;  // keys of `scaling` under policy adaptive
  Output output = Output::kText;
};

// "text", "counts" or "scales"; ConfigError for another word.
InspectOptions::Output ParseInspectOutput(const std::string& word);

// Writes the view to `out` and what was left out of a CSV to `notes`. DataError where the file or a
// layer's tensors are not as they should be, ConfigError for the options.
void Inspect(const InspectOptions& options, std::ostream& out, std::ostream& notes);

}  // namespace ada::study
