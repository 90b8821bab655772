// How several take part in one whole: an even split in their order.
#pragma once
#include <cstdint>

namespace ada {

// Items first .. first + count of a whole.
struct Share {
  std::int64_t first = 0, count = 0;
};
// The part of number `index` of `parts`: parts lie one after the other and differ by at most one
// item; the first ones are the larger.
inline Share ShareOf(std::int64_t total, int parts, int index) {
  const std::int64_t each = total / parts, more = total % parts;
  const std::int64_t before = index < more ? index : more;
  return {each * index + before, each + (index < more ? 1 : 0)};
}

}  // namespace ada
