// Where a format's rounding loses values: which magnitudes become zero at its lower end, and which
// leave it at the upper one.
#pragma once
#include "number/number_format.h"

namespace ada {

// By magnitudes alone. Between the two numbers of an end a value is lost under one of its two signs
// (toward_positive, toward_negative); else they are the same. Formats that draw count as rounded to
// nearest, those without a sign as if all values were positive.
struct LostEnds {
  double zero_below, kept_from;  // zero_below itself is lost where it is half the smallest value
  double some_leave_from, leave_from;  // inf: none leaves
};
LostEnds LostEndsOf(const NumberFormat& format);

// `asked`, rounded by the modes that `own` has (number/table_grid.h), where it has any.
NumberFormat RoundedLike(const NumberFormat& asked, const NumberFormat& own);

}  // namespace ada
