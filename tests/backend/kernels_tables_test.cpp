// The kernel that rounds and counts, in formats with a table and by other modes: against the tables
// themselves (number/tables), in every instruction set.
#include <doctest/doctest.h>

#include "backend/isa_record.h"
#include "number/tables/table_format.h"

namespace ada::backend::test {
namespace {

struct TableCase {
  TableFormat table;
  NumberFormat format;
  TableModes modes;
};

std::vector<TableCase> TableCases() {
  std::vector<TableCase> cases;
  const auto add = [&](const TableFormat& table, const NumberFormat& format, TableModes modes) {
    cases.push_back({table, WithModes(format, modes), modes});
  };
  for (const char* name :
       {"hifloat8", "binary8p3se", "binary4p2sf", "binary8p4ue", "binary3p1se"}) {
    const TableFormat table = TableFormatNamed(name).value();
    const NumberFormat format = TableNumberFormatNamed(name).value();
    add(table, format, {});
    add(table, format, {TableRounding::kTowardPositive, TableOverflow::kSaturateFinite});
    add(table, format, {TableRounding::kStochasticB, TableOverflow::kNone, 6});
  }
  for (const NumberFormat& format : {kFp8E4M3, kFp8E5M2, kFp16, kBf16, kFp4E2M1}) {
    add(TableOf(format), format, {TableRounding::kTowardZero});
    add(TableOf(format), format, {TableRounding::kNearestAway, TableOverflow::kSaturateFinite});
  }
  return cases;
}

// Whether x is finite and what it is rounded to lies beyond the largest value, or is no number of
// the format: the table goes on by one value that tells.
bool Leaves(const TableCase& c, double x, std::uint32_t random) {
  if (!std::isfinite(x)) return false;
  constexpr std::uint16_t kBeyond = 0xfffe;
  TableFormat more = c.table;
  more.magnitudes.push_back(more.next), more.codes.push_back(kBeyond);
  more.next *= 4;
  const double size = std::fabs(x);
  if (c.table.sign == 0 && x < 0)
    return std::isnan(c.table.ValueOf(c.table.CodeOf(x, c.modes, random)));
  TableModes modes = c.modes;
  modes.overflow = TableOverflow::kNone;
  if (size >= c.table.next) return true;
  // The code of a negative value has its sign on top of the marker's.
  return (more.CodeOf(x, modes, random) | c.table.sign) == (kBeyond | c.table.sign);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("kernels: tables and modes round and count as the tables say") {
    for (const Kernels* kernels : KernelSets()) {
      CAPTURE(kernels->name);
      for (const TableCase& c : TableCases()) {
        CAPTURE(c.table.name);
        CAPTURE(static_cast<int>(c.modes.rounding));
        const bool draws = IsStochastic(c.modes.rounding);
        for (const float scale : {1.0f, 0x1p3f}) {
          const std::size_t n = 1003;
          Values in = Spread(c.format, n, 7);
          for (std::size_t i = 0; i < n; i += 5) in[i] = Normal(n, 1, 3)[i];
          in[17] = std::numeric_limits<float>::infinity(), in[18] = -in[17], in[19] = NAN;
          in[20] = 0, in[21] = -0.0f;
          BlockStats stats;
          cpu::Rounding rounding;
          rounding.format = c.format, rounding.count = true, rounding.moments = true;
          rounding.stats = &stats, rounding.scale = scale;
          rounding.edge = scale == 1 ? 1 : 0.125;
          rounding.stochastic = draws, rounding.key = 5, rounding.draw = 9, rounding.first = 3;
          Memory out(Storage::kF32, n);
          kernels->round(in.data(), 1.0f, out.piece(), static_cast<std::int64_t>(n), rounding);
          BlockStats want;
          const Values got = out.Get();
          std::size_t differ = 0;
          for (std::size_t i = 0; i < n; ++i) {
            const std::uint64_t at = rounding.first + i;
            const std::uint32_t word =
                Philox(rounding.key, rounding.draw, at / 4)[static_cast<std::size_t>(at % 4)];
            // The scale may bring a finite value beyond fp32, which does not make it infinite.
            const float scaled = in[i] * scale;
            const double x = std::isinf(scaled)
                                 ? static_cast<double>(in[i]) * static_cast<double>(scale)
                                 : static_cast<double>(scaled);
            const double value = c.table.ValueOf(c.table.CodeOf(x, c.modes, word));
            const auto stored = static_cast<float>(value) / scale;
            differ += !(got[i] == stored || (std::isnan(got[i]) && std::isnan(stored)));
            const bool nan_to_zero = std::isnan(x) && value == 0;
            want.zeros += in[i] == 0, want.zeros_after += value == 0;
            want.underflow += in[i] != 0 && value == 0 && !nan_to_zero;
            want.below_min += std::fabs(x) < c.table.magnitudes[1];
            want.subnormal += value != 0 && std::fabs(value) < c.table.normal_from;
            want.overflow += std::isfinite(in[i]) && Leaves(c, x, word);
            want.above_edge += std::fabs(value) > rounding.edge * c.format.largest();
            want.inf += std::isinf(in[i]), want.nan += std::isnan(in[i]);
          }
          CHECK(differ == 0);
          CHECK(stats.zeros == want.zeros);
          CHECK(stats.zeros_after == want.zeros_after);
          CHECK(stats.underflow == want.underflow);
          CHECK(stats.below_min == want.below_min);
          CHECK(stats.subnormal == want.subnormal);
          CHECK(stats.overflow == want.overflow);
          CHECK(stats.above_edge == want.above_edge);
          CHECK(stats.inf == want.inf);
          CHECK(stats.nan == want.nan);
        }
      }
    }
  }
}

}  // namespace ada::backend::test
