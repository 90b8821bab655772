// Runs independent tasks in parallel where there is no pool of threads: while a run starts.
#pragma once
#include <functional>
#include <vector>

namespace ada {

// Runs every task, on up to as many threads as there are cores, begun in order. When all have
// ended, throws again what the first of those that failed has thrown.
void RunInParallel(const std::vector<std::function<void()>>& tasks);

}  // namespace ada
