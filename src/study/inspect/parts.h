// The parts of `inspect`: the counts of a file's tensors, the layers that it holds, and what the
// methods of `adaptive` choose for them, through the rules that training calls.
#pragma once
#include <array>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/load.h"
#include "core/number_format.h"
#include "core/safetensors.h"
#include "core/stats.h"
#include "scaling/rules/rules.h"

namespace ada::study {

// How many non-zero finite values have which floor(log2 |x|), as the file has them.
struct Exponents {
  static constexpr int kLowest = -149, kHighest = 127;  // of fp32, subnormals included
  std::array<std::int64_t, kHighest - kLowest + 1> counts = {};
  std::int64_t& At(int exponent) { return counts[static_cast<std::size_t>(exponent - kLowest)]; }
  std::int64_t At(int exponent) const {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
};

struct TensorCount {
  TensorStats stats;  // of rounding the values that the file has
  double scale = 1;   // that they carry: moments and extremes are reported without it
  Exponents exponents;
};

TensorCount CountTensor(const SafetensorsFile& file, const TensorEntry& entry,
                        const NumberFormat& format, double scale);

// The columns of underflow.csv that a file can fill.
inline constexpr char kCountColumns[] =
    "tensor,format,scale,numel,zeros,underflow,underflow_pct_nonzero,underflow_pct_numel,"
    "subnormal,overflow,inf,nan,min_abs,max_abs,mean,std,l2,range_log2";
void WriteCountRow(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                   std::ostream& out);

// A layer of a file: NAME.dy, with NAME.w where there is one.
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

// What one method chooses for a layer.
struct MethodScale {
  std::string method;  // as in the YAML
  double fan = 1;
  scaling::ScaleDecision decision;
  bool nan_unbound = false;  // the authors' program goes on with this NaN (and fails)
};

// One decision a method, that of a layer's first backward pass: all methods, or the layer's own
// where the overrides name one. `fixed` only where a scale is set, exact_range where the file has a
// dx. `format` is that of dx and of the rounded w; `scale_in` is S of dy (and of dx).
std::vector<MethodScale> ScalesOf(const SafetensorsFile& file, const FileLayer& layer,
                                  const config::AdaptiveOverrides& adaptive,
                                  const NumberFormat& format, float scale_in);

inline constexpr char kScaleColumns[] =
    "layer,method,fan,scale_in,unbound,bound,pow2,alpha,scale_out,limit,error";
void WriteScaleRow(const std::string& layer, const MethodScale& scale, std::ostream& out);

// The fields of a row behind scale_in, empty where a stage was not taken: unbound, bound, pow2,
// alpha, scale_out, limit, error; numbers by `number`, scales by `exact`.
struct StageTexts {
  std::string unbound, bound, pow2, alpha, scale_out, limit, error;
};
StageTexts TextsOf(const MethodScale& scale, std::string (*number)(double),
                   std::string (*exact)(double));

// The view for a terminal, in lines of at most 100 columns (but for long names).
// The range of the format and what the marks beside the histograms mean.
void PrintFormat(const NumberFormat& format, std::ostream& out);
void PrintCount(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                std::ostream& out);
void PrintSkipped(const TensorEntry& entry, std::ostream& out);  // an integer tensor
void PrintScales(const FileLayer& layer, const std::vector<MethodScale>& scales, std::ostream& out);

}  // namespace ada::study
