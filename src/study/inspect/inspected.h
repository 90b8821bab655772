// The parts of `inspect`: the counts of a file's tensors, the layers that it holds, and what the
// methods of `adaptive` choose for them, through the rules that training calls.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "config/load.h"
#include "io/tensor_files/safetensors.h"
#include "number/number_format.h"
#include "number/stats.h"
#include "scaling/rules/rules.h"
#include "study/commands.h"
#include "telemetry/block_figures.h"
#include "telemetry/columns.h"

namespace ada::study {

// Counts of the non-zero finite values by floor(log2 |x|), as the file has them.
// About 2100 counts: the object is large and is passed by reference.
struct Exponents {
  static constexpr int kLowest = -1074, kHighest = 1023;  // of fp64, subnormals included
  std::array<std::int64_t, kHighest - kLowest + 1> counts = {};
  std::int64_t& At(int exponent) { return counts[static_cast<std::size_t>(exponent - kLowest)]; }
  std::int64_t At(int exponent) const {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
};

// What the short view, the histogram and the CSV all show is taken from one count, made once a
// tensor.
struct TensorCount {
  TensorStats stats;  // of rounding the values that the file has
  double scale = 1;   // that they carry: moments and extremes are reported without it
  // Magnitudes of the smallest and largest finite values other than zero; 0: there are none.
  double smallest = 0, largest = 0;
  Exponents exponents;
};

TensorCount CountTensor(const SafetensorsFile& file, const TensorEntry& entry,
                        const NumberFormat& format, double scale);

// A row of `--csv counts`: the columns of underflow.csv that a file can fill.
struct CountRow {
  std::string tensor, format;
  double scale = 1;
  std::int64_t numel = 0, zeros = 0, underflow = 0;
  double underflow_pct_nonzero = NAN, underflow_pct_numel = NAN;
  std::int64_t subnormal = 0, overflow = 0, inf = 0, nan = 0;
  double min_abs = NAN, max_abs = NAN, mean = NAN, std = NAN, l2 = NAN;
  std::optional<double> range_log2 = std::nullopt;  // none where no value is finite and not zero

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<CountRow>>({
        {"tensor", &CountRow::tensor},
        {"format", &CountRow::format},
        {"scale", &CountRow::scale, kExact | kPlain},
        {"numel", &CountRow::numel},
        {"zeros", &CountRow::zeros},
        {"underflow", &CountRow::underflow},
        {"underflow_pct_nonzero", &CountRow::underflow_pct_nonzero, kPlain | kEmptyNan},
        {"underflow_pct_numel", &CountRow::underflow_pct_numel, kPlain | kEmptyNan},
        {"subnormal", &CountRow::subnormal},
        {"overflow", &CountRow::overflow},
        {"inf", &CountRow::inf},
        {"nan", &CountRow::nan},
        {"min_abs", &CountRow::min_abs, kPlain | kEmptyNan},
        {"max_abs", &CountRow::max_abs, kPlain},
        {"mean", &CountRow::mean, kPlain},
        {"std", &CountRow::std, kPlain},
        {"l2", &CountRow::l2, kPlain},
        {"range_log2", &CountRow::range_log2, kPlain},
    });
  }
};
// Moments and magnitudes are unscaled there, counts are those of the scaled values.
CountRow CountRowOf(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count);

// A row of `--csv counts` where the format is block-scaled.
struct BlockCountRow : telemetry::BlockFigures {
  std::string tensor, format;
  double scale = 1;  // that the values carry

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return telemetry::Joined(std::to_array<telemetry::Column<BlockCountRow>>({
                                 {"tensor", &BlockCountRow::tensor},
                                 {"format", &BlockCountRow::format},
                                 {"scale", &BlockCountRow::scale, kExact | kPlain},
                             }),
                             telemetry::BlockColumns<BlockCountRow>());
  }
};

BlockCountRow BlockCountRowOf(const SafetensorsFile& file, const TensorEntry& entry,
                              const BlockFormat& format, std::optional<int> axis, double scale);
// These print what a block-scaled format is and keeps of the tensors: a line a tensor, those that
// lose most first; every figure of one.
void PrintBlockFormat(const BlockFormat& format, std::ostream& out);
void PrintBlockTable(std::vector<BlockCountRow> rows, std::ostream& out);
void PrintBlockCount(const TensorEntry& entry, const BlockCountRow& row, std::ostream& out);

// A layer of a file: NAME.dy, with NAME.w or NAME.factor where there is one.
// It points to entries of the file that it was found in, which must outlive it.
struct FileLayer {
  enum class Kind { kCast, kLinear, kConvolution, kBatchNorm };
  std::string name;
  Kind kind = Kind::kCast;
  const TensorEntry *dy = nullptr, *w = nullptr;  // w: of a batch norm its factors; of a cast null
  const TensorEntry* dx = nullptr;                // null where the file has none
  std::int64_t outputs = 0;                       // features or channels; 0 for a cast
  bool transposed = false;                        // w [in, out / groups, k...]
  bool channels_first = false;                    // of a linear layer: dy [n, out, tokens, 1]
  std::int64_t groups = 1;                        // of a convolution
  // Length of the sums in dx: outputs times the kernel's size, for `exact` by groups and stride.
  double fan_reference = 1, fan_exact = 1;
  bool geometry_known = true;  // false: a convolution whose groups and stride are taken as 1
};

struct FileLayers {
  std::vector<FileLayer> layers;      // in the order of the file
  std::vector<std::string> left_out;  // why a NAME.dy is no layer, one line each
  std::size_t passing = 0;            // layers that choose no scale, as a dump's metadata say
};

// Returns the layers whose NAME.dy matches `glob`. w [out, in]: linear, dy [..., out] or, in a dump
// of sequences, [n, out, tokens, 1]. w [out, in,
// k...]: convolution, dy [n, out, ...] of w's rank; w [in, out / groups, k...] where a dump's
// metadata ("kind:NAME") say that it is transposed. factor [c]: batch norm, dy [n, c, ...]. Throws
// DataError naming both tensors where they do not fit, or where w is no float tensor.
FileLayers FindLayers(const SafetensorsFile& file, const std::string& glob);

// Whether the glob of `options` selects a tensor. The scales that a run's dump has of block-scaled
// operands (NAME.OPERAND.scales, .amax), which no format rounds, take a glob that ends in their
// names.
// Calls `count` with each float tensor among them, and `skip` with the others.
void EachShown(const SafetensorsFile& file, const InspectOptions& options,
               const std::function<void(const TensorEntry&)>& count,
               const std::function<void(const TensorEntry&)>& skip = nullptr);

// Returns what Decide reads: dy as the file has it, w rounded to `weight_format` as a run
// multiplies it (factors as they are). The layer's tensors are read once; every method's needs are
// filled in.
scaling::Observation Observe(const SafetensorsFile& file, const FileLayer& layer,
                             const NumberFormat& weight_format);

// Returns the exponents of NAME.dx for ObserveTail. The layer must have a dx.
scaling::ExponentTail TailOf(const SafetensorsFile& file, const FileLayer& layer);

// What one method chooses for a layer, made by ScalesOf: it is shown as a line of the short view,
// of --all, or of the CSV.
struct MethodScale {
  std::string method;  // as in the YAML
  double fan = 1;
  scaling::ScaleDecision decision;
  bool nan_unbound = false;  // the authors' program goes on with this NaN (and fails)
};

// Returns one decision a method, that of a layer's first backward pass, of all methods, or of the
// layer's own where the overrides name one. `fixed` is among them only where a scale is set,
// exact_range where the file has a dx. `format` is that of dx and of the rounded w; `scale_in` is S
// of dy (and of dx).
std::vector<MethodScale> ScalesOf(const SafetensorsFile& file, const FileLayer& layer,
                                  const config::AdaptiveOverrides& adaptive,
                                  const NumberFormat& format, float scale_in);

// A row of `--csv scales`; nothing where a stage was not taken.
struct MethodRow {
  std::string layer, method;
  double fan = 1, scale_in = 1;
  std::optional<double> unbound, bound, pow2, alpha, scale_out;
  std::string limit, error;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<MethodRow>>({
        {"layer", &MethodRow::layer},
        {"method", &MethodRow::method},
        {"fan", &MethodRow::fan, kPlain},
        {"scale_in", &MethodRow::scale_in, kExact | kPlain},
        {"unbound", &MethodRow::unbound, kPlain},
        {"bound", &MethodRow::bound, kPlain},
        {"pow2", &MethodRow::pow2, kExact | kPlain},
        {"alpha", &MethodRow::alpha, kExact | kPlain},
        {"scale_out", &MethodRow::scale_out, kExact | kPlain},
        {"limit", &MethodRow::limit},
        {"error", &MethodRow::error},
    });
  }
};
MethodRow MethodRowOf(const std::string& layer, const MethodScale& scale);

// A layer of the short view.
struct LayerLine {
  const FileLayer* layer = nullptr;
  std::vector<MethodScale> scales;
};

// These print the short view: a line a tensor, those that lose most first (before them gradients
// without any value other than zero), and a line a layer with each method's alpha.
void PrintTensors(std::vector<CountRow> tensors, std::ostream& out);
void PrintLayers(const std::vector<LayerLine>& layers, std::ostream& out);

// Whether `name` is that of a gradient of activations, which carries S: NAME.dy, NAME.dx.
bool CarriesScale(const std::string& name);

// These print the view of --all for a terminal, in lines of at most 100 columns (but for long
// names): the range of the format, what the marks beside the histograms mean, a tensor, a layer.
std::string ShapeText(const TensorEntry& entry);  // "F32 [2, 3]"
void PrintFormat(const NumberFormat& format, std::ostream& out);
void PrintMarks(std::ostream& out);
void PrintCount(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                std::ostream& out);
void PrintSkipped(const TensorEntry& entry, std::ostream& out);  // an integer tensor
void PrintScales(const FileLayer& layer, const std::vector<MethodScale>& scales, std::ostream& out);

}  // namespace ada::study
