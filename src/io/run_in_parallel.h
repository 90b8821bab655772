// Division of work: an even split among several participants, and independent tasks run in parallel
// where there is no thread pool.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "error.h"

namespace ada {

// A participant's share of an even split of a whole: items first .. first + count.
struct Share {
  std::int64_t first = 0, count = 0;
};
// Part number `index` of `parts`: parts are consecutive and differ by at most one item; the first
// ones are larger.
inline Share ShareOf(std::int64_t total, int parts, int index) {
  const std::int64_t each = total / parts, more = total % parts;
  const std::int64_t before = index < more ? index : more;
  return {each * index + before, each + (index < more ? 1 : 0)};
}

// Runs every task, on at most as many threads as there are cores, starting them in order. When all
// have ended, rethrows the exception of the first task that failed. If the machine refuses threads,
// fewer threads do all the work.
void RunInParallel(const std::vector<std::function<void()>>& tasks);
// The same for 0 .. count - 1 in ranges of `of_task` numbers: body(begin, end).
void RunRangesInParallel(std::int64_t count, std::int64_t of_task,
                         const std::function<void(std::int64_t, std::int64_t)>& body);

// "cannot start a thread that <purpose>: ...", and what to do about it. The code that starts
// threads must join those that run before it throws this.
DeviceError ThreadRefused(const std::string& purpose, const std::system_error& error);

}  // namespace ada
