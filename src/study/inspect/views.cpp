// What people see: a line a tensor and a line a layer; or with --all each tensor with its moments
// and a histogram of exponents, and each layer with all stages of its decisions.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ostream>
#include <utility>

#include "io/shown_text.h"
#include "io/text.h"
#include "study/inspect/inspected.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr int kBarColumns = 48;

// Four significant digits. Numbers that are not finite are words, which four digits do not suit.
std::string Brief(double value) {
  if (!std::isfinite(value)) return NineDigits(value);
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::general, 4);
  return {buffer.data(), result.ptr};
}

std::string PercentWords(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return "-";
  return Brief(100.0 * static_cast<double>(part) / static_cast<double>(whole)) + " %";
}

// A scale in full where that is short.
std::string BriefScale(double value) {
  const std::string exact = ShortestText(value);
  return exact.size() <= 9 ? exact : Brief(value);
}

const char* KindName(const FileLayer& layer) {
  if (layer.kind == FileLayer::Kind::kCast) return "cast";
  if (layer.kind == FileLayer::Kind::kBatchNorm) return "batch norm";
  return layer.kind == FileLayer::Kind::kLinear ? "linear" : "convolution";
}

std::string Padded(const std::string& text, std::size_t width, bool right = true) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return right ? space + text : text + space;
}

// The exponent's relation to the format: below it, subnormal, normal, or above.
char Mark(int exponent, const NumberFormat& format) {
  if (exponent < std::ilogb(format.smallest_subnormal())) return '-';
  if (exponent < std::ilogb(format.smallest_normal())) return 's';
  return exponent > std::ilogb(format.largest()) ? '+' : ' ';
}

// A count that is too small for one mark gets a dot, so that it is not taken for none.
void PrintBar(int exponent, std::int64_t count, std::int64_t most, std::int64_t all,
              const NumberFormat& format, std::ostream& out) {
  const double share = static_cast<double>(count) / static_cast<double>(most);
  std::string bar(static_cast<std::size_t>(std::lround(share * kBarColumns)), '#');
  if (bar.empty() && count > 0) bar = ".";
  out << "  2^" << Padded(std::to_string(exponent), 4, false) << ' ' << Mark(exponent, format)
      << " |" << Padded(bar, kBarColumns, false) << Padded(PercentWords(count, all), 13) << '\n';
}

// Rows run from the largest exponent down; long stretches without values are left out.
void PrintHistogram(const Exponents& exponents, const NumberFormat& format, std::ostream& out) {
  const auto& counts = exponents.counts;
  const std::int64_t most = *std::max_element(counts.begin(), counts.end());
  if (most == 0) return;
  // Some count is above zero here, so both searches end.
  int low = Exponents::kLowest, high = Exponents::kHighest;
  while (exponents.At(low) == 0) ++low;
  while (exponents.At(high) == 0) --high;
  std::int64_t all = 0;
  for (const std::int64_t count : counts) all += count;
  for (int e = high; e >= low; --e) {
    int empty = 0;  // rows from here on without any value
    while (exponents.At(e - empty) == 0) ++empty;
    if (empty > 3) {
      out << "  ...\n";
      e -= empty - 1;
      continue;
    }
    PrintBar(e, exponents.At(e), most, all, format, out);
  }
}

bool IsGradient(const std::string& name) { return CarriesScale(name) || name.ends_with(".dw"); }

// A gradient that has arrived nowhere.
bool IsAllZero(const CountRow& row) {
  return IsGradient(row.tensor) && row.numel > 0 && row.zeros == row.numel;
}

// The sort key of lines: the share of the values other than zero that are no longer
// meaningful, above 100 if there are none; then the share of those that keep fewer digits. A
// value that is lost, overflowed or was not finite from the start is worse than one that keeps
// fewer digits.
std::pair<double, double> Badness(const CountRow& row) {
  const std::int64_t nonzero = row.numel - row.zeros;
  if (nonzero == 0) return {IsAllZero(row) ? 101 : -1, 0};
  return {PercentOf(row.underflow + row.overflow + row.inf + row.nan, nonzero),
          PercentOf(row.subnormal, nonzero)};
}

// "element_wise" for element_wise_range.
std::string ShortMethod(const std::string& method) {
  constexpr std::string_view kTail = "_range";
  return method.ends_with(kTail) ? method.substr(0, method.size() - kTail.size()) : method;
}

std::string AlphaText(const MethodScale& scale) {
  if (scale.decision.error != scaling::DecisionError::kNone) return "error";
  const double alpha = static_cast<double>(scale.decision.alpha);
  return std::isnan(alpha) ? "-" : BriefScale(alpha);
}

}  // namespace

std::string ShapeText(const TensorEntry& entry) {
  return entry.dtype_text() + " " + DimsText(entry.shape);
}

void PrintFormat(const NumberFormat& format, std::ostream& out) {
  out << "format " << FormatName(format) << ": largest " << NineDigits(format.largest())
      << ", normal from 2^" << std::ilogb(format.smallest_normal()) << ", subnormal from 2^"
      << std::ilogb(format.smallest_subnormal()) << '\n';
}

void PrintMarks(std::ostream& out) {
  out << "histograms: share of the finite non-zero values with floor(log2 |x|) = e;\n"
      << "beside 2^e: s subnormal in the format, - below its smallest, + above its largest\n";
}

// Moments are shown unscaled, counts as they are with the scale.
void PrintCount(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                std::ostream& out) {
  const TensorStats& s = count.stats;
  const double scale = count.scale;
  out << '\n'
      << Visible(entry.name) << "  " << ShapeText(entry) << "  " << s.numel << " values, scale "
      << ShortestText(scale) << '\n';
  out << "  zeros " << s.zeros_before << " (" << PercentWords(s.zeros_before, s.numel)
      << ")   underflow " << s.underflow << " ("
      << PercentWords(s.underflow, s.numel - s.zeros_before) << " of non-zeros)\n  subnormal "
      << s.subnormal << "   overflow " << s.overflow << "   inf " << s.inf << "   nan " << s.nan
      << '\n';
  out << "  min " << (count.smallest > 0 ? Brief(count.smallest / scale) : "-") << "   max "
      << Brief(count.largest / scale) << "   mean " << Brief(s.mean / scale) << "   std "
      << Brief(s.std / scale) << "   l2 " << Brief(s.l2 / scale) << '\n';
  PrintHistogram(count.exponents, format, out);
}

void PrintSkipped(const TensorEntry& entry, std::ostream& out) {
  out << '\n' << Visible(entry.name) << "  " << ShapeText(entry) << "  skipped: no float tensor\n";
}

void PrintScales(const FileLayer& layer, const std::vector<MethodScale>& scales,
                 std::ostream& out) {
  if (scales.empty()) return;
  out << "\nscales of " << Visible(layer.name) << ": " << KindName(layer) << ", fan "
      << Brief(scales.front().fan) << ", scale_in "
      << ShortestText(static_cast<double>(scales.front().decision.scale_in)) << '\n'
      << "  method               unbound     bound      pow2     alpha scale_out limit\n";
  for (const MethodScale& scale : scales) {
    const MethodRow row = MethodRowOf(layer.name, scale);
    out << "  " << Padded(scale.method, 18, false);
    for (const auto& number : {row.unbound, row.bound})
      out << Padded(number ? Brief(*number) : "", 10);
    for (const auto& exact : {row.pow2, row.alpha, row.scale_out})
      out << Padded(exact ? BriefScale(*exact) : "", 10);
    out << ' ' << row.limit << '\n';
    if (!row.error.empty()) out << "    " << row.error << '\n';
  }
}

void PrintTensors(std::vector<CountRow> tensors, std::ostream& out) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const CountRow& a, const CountRow& b) { return Badness(a) > Badness(b); });
  out << "\ntensors, those that lose most first (lost: of the values other than zero, in %)\n";
  TextTable table(
      {"tensor", "lost", "subnormal", "overflow", "inf, nan", "zeros", "largest", "S", "values"});
  for (const CountRow& row : tensors)
    table.Row({row.tensor, IsAllZero(row) ? "all zero" : PctText(row.underflow_pct_nonzero),
               PctText(PercentOf(row.subnormal, row.numel - row.zeros)),
               std::to_string(row.overflow), std::to_string(row.inf + row.nan),
               PctText(PercentOf(row.zeros, row.numel)), Brief(row.max_abs), BriefScale(row.scale),
               std::to_string(row.numel)});
  table.Print(out);
}

void PrintLayers(const std::vector<LayerLine>& layers, std::ostream& out) {
  if (layers.empty()) return;
  std::vector<std::string> methods;  // those of any layer, in the order in which they are shown
  for (const LayerLine& line : layers)
    for (const MethodScale& scale : line.scales)
      if (!Contains(methods, scale.method)) methods.push_back(scale.method);
  out << "\nalpha that each method of adaptive would choose for a layer\n";
  std::vector<std::string> titles = {"layer", "kind", "fan", "S"};
  for (const std::string& method : methods) titles.push_back(ShortMethod(method));
  TextTable table(titles, 2);
  for (const LayerLine& line : layers) {
    // Fan and S are the same for all methods of a layer.
    const MethodScale& first = line.scales.front();
    std::vector<std::string> row = {line.layer->name, KindName(*line.layer), Brief(first.fan),
                                    BriefScale(static_cast<double>(first.decision.scale_in))};
    for (const std::string& method : methods) {
      const auto found =
          std::find_if(line.scales.begin(), line.scales.end(),
                       [&](const MethodScale& scale) { return scale.method == method; });
      row.push_back(found == line.scales.end() ? "-" : AlphaText(*found));
    }
    table.Row(std::move(row));
  }
  table.Print(out);
}

// What the format is, in words, before what it keeps.
void PrintBlockFormat(const BlockFormat& format, std::ostream& out) {
  const std::string n = std::to_string(format.block);
  out << "format " << FormatName(format) << ":\n  "
      << (format.square ? "tiles of " + n + " x " : "blocks of ") << n
      << " values share a scale in " << ToString(format.scale) << " (rule " << ToString(format.rule)
      << ");\n"
      << (format.row_scaled ? "  each row has an fp32 scale as well;\n" : "") << "  elements of "
      << FormatName(format.element) << ", largest " << NineDigits(format.element.largest()) << '\n';
}

void PrintBlockTable(std::vector<BlockCountRow> rows, std::ostream& out) {
  std::stable_sort(rows.begin(), rows.end(), telemetry::LosesMore);
  out << "\ntensors, those that lose most first (lost: of the values other than zero, in %;\n"
         "SQNR and that of the worst block in dB; log2 of scales)\n";
  TextTable table({"tensor", "lost", "saturated", "SQNR", "worst", "scales", "blocks", "values"});
  for (const BlockCountRow& row : rows)
    table.Row({row.tensor, PctText(row.lost_pct_nonzero), std::to_string(row.saturated),
               telemetry::DecibelText(row.sqnr_db), telemetry::DecibelText(row.sqnr_worst_db),
               telemetry::ScalesText(row), std::to_string(row.blocks), std::to_string(row.numel)});
  table.Print(out);
}

void PrintBlockCount(const TensorEntry& entry, const BlockCountRow& r, std::ostream& out) {
  out << '\n'
      << Visible(r.tensor) << "  " << ShapeText(entry) << "  " << r.numel << " values, scale "
      << ShortestText(r.scale) << '\n'
      << "  zeros " << r.zeros << "   inf " << r.inf << "   nan " << r.nan << "   saturated "
      << r.saturated << '\n'
      << "  lost " << r.lost << " (" << PercentWords(r.lost, r.numel - r.zeros)
      << " of non-zeros): beside the block's largest " << r.lost_beside_largest
      << ",\n    rounding of the scale " << r.lost_scale_rounding << ", floor of the scale "
      << r.lost_scale_floor << ", tensor scale " << r.lost_tensor_scale << '\n'
      << "  blocks " << r.blocks << "   zero " << r.zero_blocks << "   not finite "
      << r.broken_blocks << "   scale at its floor " << r.scale_floor << ", ceiling "
      << r.scale_ceiling << '\n'
      << "  scales, log2: " << telemetry::ScalesText(r) << ", mean "
      << telemetry::Log2Text(r.scale_log2_mean) << ", std " << telemetry::Log2Text(r.scale_log2_std)
      << '\n'
      << "  SQNR " << telemetry::DecibelText(r.sqnr_db) << " dB, mean of the blocks "
      << telemetry::DecibelText(r.sqnr_mean_db) << ", worst "
      << telemetry::DecibelText(r.sqnr_worst_db) << '\n';
}

}  // namespace ada::study
