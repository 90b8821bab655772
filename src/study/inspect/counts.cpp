#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "study/inspect/parts.h"

namespace ada::study {

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

CountRow CountRowOf(const TensorEntry& entry, const NumberFormat& format,
                    const TensorCount& count) {
  const TensorStats& s = count.stats;
  const double smallest = s.min_abs, largest = s.max_abs;
  CountRow row{.tensor = entry.name,
               .format = FormatName(format),
               .scale = count.scale,
               .numel = s.numel,
               .zeros = s.zeros_before,
               .underflow = s.underflow,
               .underflow_pct_nonzero = PercentOf(s.underflow, s.numel - s.zeros_before),
               .underflow_pct_numel = PercentOf(s.underflow, s.numel),
               .subnormal = s.subnormal,
               .overflow = s.overflow,
               .inf = s.inf,
               .nan = s.nan,
               .max_abs = largest / count.scale,
               .mean = s.mean / count.scale,
               .std = s.std / count.scale,
               .l2 = s.l2 / count.scale};
  if (smallest > 0) {  // a finite value that is not zero
    row.min_abs = smallest / count.scale;
    row.range_log2 = std::log2(largest / smallest);
  }
  return row;
}

}  // namespace ada::study
