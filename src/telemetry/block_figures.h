// Figures for a tensor that was quantized to a block-scaled format: the columns that blocks.csv and
// `inspect --csv counts` share.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "number/blocks/block_counts.h"
#include "telemetry/columns.h"

namespace ada::telemetry {

// Training is said to stall when a gradient's power is less than this many times that of its errors
// (arXiv 2505.19115).
inline constexpr double kStallPower = 3;

// BlockCounts in the form in which they are shown; rows derive from this struct. Lost values are
// divided by cause as in BlockCounts: the four causes add up to `lost`. Values and blocks are
// counts, sqnr is in decibels, scales are log2. NaN: no block or value was measured.
struct BlockFigures {
  std::int64_t numel = 0, zeros = 0, inf = 0, nan = 0;
  std::int64_t lost = 0;
  double lost_pct_nonzero = NAN;
  std::int64_t lost_beside_largest = 0, lost_scale_rounding = 0, lost_scale_floor = 0,
               lost_tensor_scale = 0;
  std::int64_t saturated = 0;
  std::int64_t blocks = 0, zero_blocks = 0, broken_blocks = 0;
  double scale_log2_min = NAN, scale_log2_max = NAN, scale_log2_mean = NAN, scale_log2_std = NAN;
  std::int64_t scale_floor = 0, scale_ceiling = 0;
  double sqnr_db = NAN, sqnr_mean_db = NAN, sqnr_worst_db = NAN;

  // Overwrites all figures.
  void Take(const BlockCounts& counts);
};

// The columns of these figures in the table of a Row.
template <class Row>
constexpr auto BlockColumns() {
  return std::to_array<Column<Row>>({
      {"numel", &Row::numel},
      {"zeros", &Row::zeros},
      {"inf", &Row::inf},
      {"nan", &Row::nan},
      {"lost", &Row::lost},
      {"lost_pct_nonzero", &Row::lost_pct_nonzero, kPlain | kEmptyNan},
      {"lost_beside_largest", &Row::lost_beside_largest},
      {"lost_scale_rounding", &Row::lost_scale_rounding},
      {"lost_scale_floor", &Row::lost_scale_floor},
      {"lost_tensor_scale", &Row::lost_tensor_scale},
      {"saturated", &Row::saturated},
      {"blocks", &Row::blocks},
      {"zero_blocks", &Row::zero_blocks},
      {"broken_blocks", &Row::broken_blocks},
      {"scale_log2_min", &Row::scale_log2_min, kPlain | kEmptyNan},
      {"scale_log2_max", &Row::scale_log2_max, kPlain | kEmptyNan},
      {"scale_log2_mean", &Row::scale_log2_mean, kPlain | kEmptyNan},
      {"scale_log2_std", &Row::scale_log2_std, kPlain | kEmptyNan},
      {"scale_floor", &Row::scale_floor},
      {"scale_ceiling", &Row::scale_ceiling},
      {"sqnr_db", &Row::sqnr_db, kPlain | kEmptyNan},
      {"sqnr_mean_db", &Row::sqnr_mean_db, kPlain | kEmptyNan},
      {"sqnr_worst_db", &Row::sqnr_worst_db, kPlain | kEmptyNan},
  });
}

// One table after the other.
template <class Row, std::size_t m, std::size_t n>
constexpr std::array<Column<Row>, m + n> Joined(const std::array<Column<Row>, m>& first,
                                                const std::array<Column<Row>, n>& second) {
  std::array<Column<Row>, m + n> all = {};
  for (std::size_t i = 0; i < m; ++i) all[i] = first[i];
  for (std::size_t i = 0; i < n; ++i) all[m + i] = second[i];
  return all;
}

// Figures as they are shown to people.
std::string DecibelText(double db);                   // "12.3"; "exact" without noise, "-" for NaN
std::string Log2Text(double log2);                    // "-7.5"; "-" for NaN
std::string ScalesText(const BlockFigures& figures);  // "-8..3", of their log2
// Orders tensors by falling loss; tensors with only zeros, whose share is NaN, come
// last.
bool LosesMore(const BlockFigures& a, const BlockFigures& b);

}  // namespace ada::telemetry
