// The pool's loop. A step has hundreds of rounds, most of them shorter than it takes to wake a
// thread, so nobody is waited for who has not begun:
//
//   caller   open   items of its range, then the others' ......   close   wait until nobody is in
//   worker      enter   items of its range, then the others' ..  leave
//   worker   (asleep) ...................................................... comes late: stays out
//
// Each worker begins with a range of its own, the same part of every loop over the same images, so
// that it finds in its cache what it wrote in the round before; the ends of others' ranges are
// taken where its own is done.
#include "backend/cpu/thread_pool.h"

#include <omp.h>

#include <chrono>
#include <string>
#include <system_error>
#include <utility>

#include "io/machine.h"
#include "io/run_in_parallel.h"

namespace ada::backend::cpu {
namespace {

using Clock = std::chrono::steady_clock;
// Between two rounds of a step there is less; a longer wait is spent asleep.
constexpr auto kSpinTime = std::chrono::microseconds(50);
constexpr int kPausesAtATime = 32;  // between looks at the clock

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Whether `ready` became true within kSpinTime.
template <class Ready>
bool Spin(Ready&& ready) {
  for (const auto end = Clock::now() + kSpinTime; Clock::now() < end;) {
    for (int i = 0; i < kPausesAtATime; ++i) {
      if (ready()) return true;
      Pause();
    }
  }
  return ready();
}

constexpr std::uint64_t kFirst = 1, kEnd = std::uint64_t{1} << 32;
std::uint64_t Ends(std::int64_t first, std::int64_t end) {
  return static_cast<std::uint64_t>(end) << 32 | static_cast<std::uint64_t>(first);
}
std::int64_t FirstOf(std::uint64_t ends) { return static_cast<std::uint32_t>(ends); }
std::int64_t EndOf(std::uint64_t ends) { return static_cast<std::int64_t>(ends >> 32); }

// Takes the first item of a range (`back`: the last); -1 where it is empty.
std::int64_t Take(std::atomic<std::uint64_t>& range, bool back) {
  std::uint64_t ends = range.load(std::memory_order_relaxed);
  while (FirstOf(ends) < EndOf(ends)) {
    if (range.compare_exchange_weak(ends, back ? ends - kEnd : ends + kFirst))
      return back ? EndOf(ends) - 1 : FirstOf(ends);
  }
  return -1;
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : ranges_(std::make_unique<Range[]>(static_cast<std::size_t>(threads))),
      may_spin_(threads <= UsableCores()) {
  omp_set_num_threads(1);  // oneDNN's own loops stay in the thread that calls them
  try {
    Start(threads);
  } catch (const std::system_error& error) {
    const std::string numbers =
        std::to_string(threads_.size() + 2) + " of " + std::to_string(threads);
    Stop();
    throw ThreadRefused("computes (" + numbers + ")", error);
  } catch (...) {
    Stop();
    throw;
  }
}

ThreadPool::~ThreadPool() { Stop(); }

void ThreadPool::Start(int threads) {
  for (int worker = 1; worker < threads; ++worker) {
    threads_.emplace_back([this, worker] {
      omp_set_num_threads(1);
      Work(worker);
    });
  }
}

void ThreadPool::Stop() {
  stop_ = true;
  round_.fetch_add(1);
  Wake();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

// Wakes those that sleep or are about to: they look at the round again under the mutex.
void ThreadPool::Wake() {
  if (sleepers_.load() == 0) return;
  { const std::lock_guard lock(mutex_); }
  wake_.notify_all();
}

void ThreadPool::Deal(std::int64_t count) {
  const std::int64_t threads = size();
  for (std::int64_t worker = 0; worker < threads; ++worker)
    ranges_[static_cast<std::size_t>(worker)].ends.store(
        Ends(count * worker / threads, count * (worker + 1) / threads), std::memory_order_relaxed);
}

void ThreadPool::RunItems(int worker) {
  const int threads = size();
  for (int i = 0; i < threads; ++i) {
    Range& range = ranges_[static_cast<std::size_t>((worker + i) % threads)];
    for (std::int64_t item; (item = Take(range.ends, /*back=*/i > 0)) >= 0;)
      call_(context_, item, worker);
  }
}

void ThreadPool::Share(int worker) {
  try {
    if (each_)
      call_(context_, worker, worker);
    else
      RunItems(worker);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::current_exception();
    Deal(0);
  }
  if (each_) left_.fetch_sub(1);
}

void ThreadPool::Run(std::int64_t count, Call call, void* context, bool each) {
  if (threads_.empty() || (count <= 1 && !each)) {
    if (each) return call(context, 0, 0);
    for (std::int64_t item = 0; item < count; ++item) call(context, item, 0);
    return;
  }
  call_ = call, context_ = context, each_ = each;
  left_.store(each ? size() : 0, std::memory_order_relaxed);
  if (!each) Deal(count);
  round_.fetch_add(1);
  Wake();
  Share(0);
  WaitForZero(left_);
  round_.fetch_add(1);
  WaitForZero(inside_);
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// `counter` is lowered by workers that leave; they look at caller_sleeps_ afterwards.
void ThreadPool::WaitForZero(const std::atomic<int>& counter) {
  const auto zero = [&] { return counter.load() == 0; };
  if (zero() || (may_spin_ && Spin(zero))) return;
  std::unique_lock lock(mutex_);
  caller_sleeps_ = true;
  done_.wait(lock, zero);
  caller_sleeps_ = false;
}

// An open round other than `seen`. Who was woken spins again before sleeping on: rounds come in
// bursts.
std::uint64_t ThreadPool::WaitForRound(std::uint64_t seen) {
  while (true) {
    std::uint64_t round = 0;
    const auto open = [&] {
      round = round_.load();
      return (round % 2 == 1 && round != seen) || stop_.load(std::memory_order_relaxed);
    };
    if (open() || (may_spin_ && Spin(open))) return round;
    std::unique_lock lock(mutex_);
    sleepers_.fetch_add(1);
    wake_.wait(lock, [&] { return round_.load() != round; });
    sleepers_.fetch_sub(1);
  }
}

void ThreadPool::Work(int worker) {
  for (std::uint64_t seen = 0;;) {
    seen = WaitForRound(seen);
    if (stop_) return;
    // A round may be closed at any moment before this, but not between entering and leaving.
    inside_.fetch_add(1);
    if (round_.load() == seen) Share(worker);
    inside_.fetch_sub(1);
    if (!caller_sleeps_.load()) continue;
    { const std::lock_guard lock(mutex_); }
    done_.notify_one();
  }
}

}  // namespace ada::backend::cpu
