// Threads take the next task that nobody began, the caller's among them; each task's exception is
// kept by its number, so that which one is thrown does not depend on the threads.
#include "io/run_in_parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>

#include "io/machine.h"

namespace ada {

void RunInParallel(const std::vector<std::function<void()>>& tasks) {
  std::vector<std::exception_ptr> errors(tasks.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t task; (task = next.fetch_add(1)) < tasks.size();) {
      try {
        tasks[task]();
      } catch (...) {
        errors[task] = std::current_exception();
      }
    }
  };
  static const auto cores = static_cast<std::size_t>(UsableCores());
  const std::size_t wanted = std::min(tasks.size(), cores);
  std::vector<std::thread> threads;
  threads.reserve(wanted);
  try {
    while (threads.size() + 1 < wanted) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads to be had: those that run, and this one, do all of it.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

void RunRangesInParallel(std::int64_t count, std::int64_t of_task,
                         const std::function<void(std::int64_t, std::int64_t)>& body) {
  std::vector<std::function<void()>> tasks;
  for (std::int64_t begin = 0; begin < count; begin += of_task)
    tasks.push_back([&body, begin, end = std::min(count, begin + of_task)] { body(begin, end); });
  RunInParallel(tasks);
}

DeviceError ThreadRefused(const std::string& purpose, const std::system_error& error) {
  return DeviceError(
      "cannot start a thread that " + purpose + ": " + error.what() +
      "; use fewer threads (device.threads, --threads), end some processes, or raise "
      "their limit (ulimit -u, pids.max of the container)");
}

}  // namespace ada
