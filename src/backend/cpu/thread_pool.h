// A fixed set of worker threads that share the items of a loop. Which thread runs an item, and in
// which order items run, is left to chance, so items must not depend on it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace ada::backend::cpu {

class ThreadPool {
 public:
  // The caller is one of them. DeviceError where the machine refuses one; then none is left.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // body(item, worker) for items 0 .. count - 1 (count below 2^31); returns when all are done. The
  // first exception thrown by a body is thrown again here.
  template <class Body>
  void For(std::int64_t count, Body&& body) {
    auto call = [](void* context, std::int64_t item, int worker) {
      (*static_cast<std::remove_reference_t<Body>*>(context))(item, worker);
    };
    Run(count, call, const_cast<void*>(static_cast<const void*>(&body)), /*each=*/false);
  }
  // body(worker) once in every thread, at the same time.
  template <class Body>
  void Each(Body&& body) {
    auto call = [](void* context, std::int64_t, int worker) {
      (*static_cast<std::remove_reference_t<Body>*>(context))(worker);
    };
    Run(size(), call, const_cast<void*>(static_cast<const void*>(&body)), /*each=*/true);
  }

 private:
  using Call = void (*)(void* context, std::int64_t item, int worker);
  // The items that one worker has still to run: first in the low half, end in the high one.
  struct alignas(128) Range {
    std::atomic<std::uint64_t> ends{0};
  };

  void Run(std::int64_t count, Call call, void* context, bool each);
  void Deal(std::int64_t count);
  void Share(int worker);
  void RunItems(int worker);
  void Start(int threads);
  void Stop();
  void Work(int worker);
  std::uint64_t WaitForRound(std::uint64_t seen);
  void WaitForZero(const std::atomic<int>& counter);
  void Wake();

  std::vector<std::thread> threads_;
  std::unique_ptr<Range[]> ranges_;  // one a worker
  bool may_spin_;                    // every thread has a core
  // The current round; the caller writes it while no worker is inside.
  Call call_ = nullptr;
  void* context_ = nullptr;
  bool each_ = false;

  alignas(128) std::atomic<std::uint64_t> round_{0};  // odd: open
  std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false};
  alignas(128) std::atomic<int> inside_{0};  // workers in the present round
  std::atomic<int> left_{0};                 // threads that have still to run an Each
  std::atomic<bool> caller_sleeps_{false};

  alignas(128) std::mutex mutex_;  // guards error_, and both sleeps
  std::condition_variable wake_, done_;
  std::exception_ptr error_;
};

}  // namespace ada::backend::cpu
