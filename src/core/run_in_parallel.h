// Runs independent tasks in parallel where there is no pool of threads: while a run starts. And
// what is said where the machine refuses a thread that cannot be done without.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace ada {

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
