// A fixed set of worker threads that share the items of a loop. Which thread runs an item is left
// to chance, so items must not depend on it.
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
  explicit ThreadPool(int threads);  // the caller is one of them
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // body(item, worker) for items 0 .. count - 1; returns when all are done. The first exception
  // thrown by a body is thrown again here.
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
  void Run(std::int64_t count, Call call, void* context, bool each);
  void Work(int worker);
  void Share(int worker);
  void WaitForRound(std::uint64_t seen);

  std::vector<std::thread> threads_;
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  bool each_ = false;
  std::atomic<std::int64_t> next_{0};
  std::atomic<int> busy_{0};
  std::atomic<std::uint64_t> round_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::exception_ptr error_;
};

}  // namespace ada::backend::cpu
