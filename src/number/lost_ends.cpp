// The ends follow from the mode of a format's grid; a plain format rounds to nearest.
#include "number/lost_ends.h"

#include <cmath>

#include "number/table_grid.h"

namespace ada {

LostEnds LostEndsOf(const NumberFormat& format) {
  const double smallest = format.smallest_subnormal();
  const auto leaves = static_cast<double>(OverflowThreshold(format));
  // A value that lies halfway between zero and the smallest number becomes the even of them, zero.
  LostEnds ends{smallest / 2, smallest / 2, leaves, leaves};
  if (format.table == 0) return ends;
  const TableGrid& grid = TableGridAt(format.table);
  switch (grid.modes.rounding) {
    case TableRounding::kTowardZero:
      ends.zero_below = ends.kept_from = smallest;
      break;
    case TableRounding::kTowardOdd:  // zero is even
      ends.zero_below = ends.kept_from = 0;
      break;
    case TableRounding::kTowardPositive:
    case TableRounding::kTowardNegative:
      ends.zero_below = 0, ends.kept_from = smallest;
      ends.leave_from = grid.next;
      break;
    default:
      break;
  }
  return ends;
}

NumberFormat RoundedLike(const NumberFormat& asked, const NumberFormat& own) {
  if (own.table == 0) return asked;
  const TableModes& modes = TableGridAt(own.table).modes;
  return modes == TableModes() ? asked : WithModes(asked, modes);
}

}  // namespace ada
