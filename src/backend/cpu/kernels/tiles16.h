// Sixteen rows of a matrix side by side, so that loops over rows become vectors: value k of row r
// of a tile lies at k * 16 + r. Rows that are not there hold the last one's values.
#pragma once
#include <cstdint>

namespace ada::backend::cpu::ADA_ISA {
namespace {

// Rows of one tile, whatever the registers' width: sums are the same in all sets.
constexpr int kBlockRows = 16;

// `values` of each row; `count` rows are there, at least one.
template <class T>
inline __attribute__((always_inline)) void LoadTile(const float* rows, int count,
                                                    std::int64_t values, T* tile) {
  for (int r = 0; r < kBlockRows; ++r) {
    const float* row = rows + (r < count ? r : count - 1) * values;
    for (std::int64_t k = 0; k < values; ++k) tile[k * kBlockRows + r] = static_cast<T>(row[k]);
  }
}
template <class T>
inline __attribute__((always_inline)) void StoreTile(const T* tile, int count, std::int64_t values,
                                                     float* rows) {
  for (int r = 0; r < count; ++r)
    for (std::int64_t k = 0; k < values; ++k)
      rows[r * values + k] = static_cast<float>(tile[k * kBlockRows + r]);
}

}  // namespace
}  // namespace ada::backend::cpu::ADA_ISA
