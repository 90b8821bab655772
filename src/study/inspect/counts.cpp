#include <cmath>
#include <ostream>

#include "backend/cpu/cpu_backend.h"
#include "core/text.h"
#include "study/inspect/parts.h"
#include "telemetry/csv.h"

namespace ada::study {
namespace {

std::string Percent(std::int64_t part, std::int64_t whole) {
  if (whole == 0) return "";
  return NineDigits(100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

TensorCount CountTensor(const SafetensorsFile& file, const TensorEntry& entry,
                        const NumberFormat& format, double scale) {
  const std::vector<float> values = file.ReadF32(entry.name);
  TensorCount count;
  count.scale = scale;
  count.stats = backend::cpu::CountRounding(values.data(), static_cast<std::int64_t>(values.size()),
                                            1, format);
  for (const float x : values)
    if (x != 0 && std::isfinite(x)) ++count.exponents.At(std::ilogb(x));
  return count;
}

void WriteCountRow(const TensorEntry& entry, const NumberFormat& format, const TensorCount& count,
                   std::ostream& out) {
  const TensorStats& s = count.stats;
  const double smallest = s.min_abs, largest = s.max_abs, scale = count.scale;
  out << telemetry::CsvField(entry.name) << ',' << telemetry::CsvField(FormatName(format)) << ','
      << ShortestText(scale) << ',' << s.numel << ',' << s.zeros_before << ',' << s.underflow << ','
      << Percent(s.underflow, s.numel - s.zeros_before) << ',' << Percent(s.underflow, s.numel)
      << ',' << s.subnormal << ',' << s.overflow << ',' << s.inf << ',' << s.nan << ',';
  const bool any = smallest > 0;  // a finite value that is not zero
  out << (any ? NineDigits(smallest / scale) : "") << ',' << NineDigits(largest / scale) << ','
      << NineDigits(s.mean / scale) << ',' << NineDigits(s.std / scale) << ','
      << NineDigits(s.l2 / scale) << ',' << (any ? NineDigits(std::log2(largest / smallest)) : "")
      << '\n';
}

}  // namespace ada::study
