// The pool's loop: workers spin briefly between rounds, for a step has hundreds of them, then
// sleep.
#include "backend/cpu/thread_pool.h"

#include <omp.h>

#include <utility>

namespace ada::backend::cpu {
namespace {
constexpr int kSpins = 4000;  // some tens of microseconds

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}
}  // namespace

ThreadPool::ThreadPool(int threads) {
  omp_set_num_threads(1);  // oneDNN's own loops stay in the thread that calls them
  for (int worker = 1; worker < threads; ++worker) {
    threads_.emplace_back([this, worker] {
      omp_set_num_threads(1);
      Work(worker);
    });
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    round_.fetch_add(1);
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Share(int worker) {
  try {
    if (each_) return call_(context_, worker, worker);
    for (std::int64_t item; (item = next_.fetch_add(1)) < count_;) call_(context_, item, worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    next_ = count_;
  }
}

void ThreadPool::Run(std::int64_t count, Call call, void* context, bool each) {
  if (threads_.empty() || (count <= 1 && !each)) {
    if (each) return call(context, 0, 0);
    for (std::int64_t item = 0; item < count; ++item) call(context, item, 0);
    return;
  }
  call_ = call, context_ = context, count_ = count, each_ = each;
  next_ = 0;
  busy_ = static_cast<int>(threads_.size());
  {
    const std::lock_guard lock(mutex_);
    round_.fetch_add(1);
  }
  wake_.notify_all();
  Share(0);
  for (int spin = 0; busy_.load() != 0; ++spin) {
    if (spin < kSpins)
      Pause();
    else
      std::this_thread::yield();
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::WaitForRound(std::uint64_t seen) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (round_.load() != seen) return;
    Pause();
  }
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return round_.load() != seen; });
}

void ThreadPool::Work(int worker) {
  for (std::uint64_t seen = 0;;) {
    WaitForRound(seen);
    seen = round_.load();
    if (stop_) return;
    Share(worker);
    busy_.fetch_sub(1);
  }
}

}  // namespace ada::backend::cpu
