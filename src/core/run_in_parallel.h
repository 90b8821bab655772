// How one whole is divided: an even split among several, and independent tasks run in parallel
// where there is no pool of threads.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace ada {

// How several take part in one whole: an even split in their order.

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

// Runs independent tasks in parallel where there is no pool of threads: while a run starts. And
// what is said where the machine refuses a thread that cannot be done without.

// Runs every task, on up to as many threads as there are cores, begun in order. When all have
// ended, throws again what the first of those that failed has thrown. Where the machine refuses
// threads, fewer do all of it.
void RunInParallel(const std::vector<std::function<void()>>& tasks);
// The same for ranges of `of_task` numbers of 0 .. count - 1: body(begin, end).
void RunRangesInParallel(std::int64_t count, std::int64_t of_task,
                         const std::function<void(std::int64_t, std::int64_t)>& body);

// "cannot start a thread that <purpose>: ...", and what to do about it. Whoever starts threads
// joins those that it has before it throws this.
DeviceError ThreadRefused(const std::string& purpose, const std::system_error& error);

}  // namespace ada
