// The layers of a file: NAME.dy with NAME.w where there is one. What a scaling method looks at,
// taken from their tensors.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/number_format.h"
#include "core/safetensors.h"
#include "scaling/rules/rules.h"

namespace ada::study {

struct FileLayer {
  enum class Kind { kCast, kLinear, kConvolution };
  std::string name;
  Kind kind = Kind::kCast;
  const TensorEntry *dy = nullptr, *w = nullptr;  // w: null for a cast
  const TensorEntry* dx = nullptr;                // null where the file has none
  std::int64_t outputs = 0;                       // features or channels; 0 for a cast
  double fan = 1;  // outputs times the kernel's size: a file knows no stride and no groups
};

struct FileLayers {
  std::vector<FileLayer> layers;      // in the order of the file
  std::vector<std::string> left_out;  // why a NAME.dy is no layer, one line each
};

// The layers whose NAME.dy matches `glob`. w [out, in]: linear, dy [..., out]. w [out, in, k...]:
// convolution, dy [n, out, ...] of w's rank. Throws DataError naming both tensors where they do not
// fit, or where w is no float tensor.
FileLayers FindLayers(const SafetensorsFile& file, const std::string& glob);

// What Decide reads: dy as the file has it, w rounded to `weight_format` as a run multiplies it.
// One reading of the layer's tensors; every method's needs are filled in.
scaling::Observation Observe(const SafetensorsFile& file, const FileLayer& layer,
                             const NumberFormat& weight_format);

// The exponents of NAME.dx for ObserveTail: bins below `limit`. The layer must have a dx.
scaling::ExponentTail TailOf(const SafetensorsFile& file, const FileLayer& layer,
                             std::int32_t limit);

}  // namespace ada::study
