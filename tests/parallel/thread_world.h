// The processes of a run as threads of one process: a communicator whose messages are copies in
// memory, so that code for several processes is tested in every build, with or without MPI.
#pragma once
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "error.h"
#include "parallel/world.h"

namespace ada::testing {

// Where all ranks meet, once for each collective call. A rank that ends by an error ends the
// waiting of the others.
class MeetingPlace {
 public:
  void SetRanks(int ranks) { mine_.resize(static_cast<std::size_t>(ranks)); }
  void Leave() {
    const std::lock_guard lock(mutex_);
    left_ = true;
    all_here_.notify_all();
  }
  // copy(all): what the ranks brought; called when all are here, and none goes before all have.
  void Meet(int rank, const void* brought,
            const std::function<void(const std::vector<const void*>&)>& copy) {
    std::unique_lock lock(mutex_);
    mine_[static_cast<std::size_t>(rank)] = brought;
    Wait(lock);
    copy(mine_);
    Wait(lock);
  }

 private:
  void Wait(std::unique_lock<std::mutex>& lock) {
    const int round = round_;
    if (++here_ == static_cast<int>(mine_.size())) {
      here_ = 0, ++round_;
      all_here_.notify_all();
      return;
    }
    all_here_.wait(lock, [&] { return round_ != round || left_; });
    if (round_ == round) throw DeviceError("another rank has ended");
  }
  std::vector<const void*> mine_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0, round_ = 0;
  bool left_ = false;
};

class ThreadCommunicator final : public parallel::Communicator {
 public:
  ThreadCommunicator(MeetingPlace& place, int rank, int ranks)
      : place_(place), rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void AllGather(const void* mine, std::size_t bytes, void* all) override {
    place_.Meet(rank_, mine, [&](const std::vector<const void*>& brought) {
      for (std::size_t r = 0; r < brought.size(); ++r)
        std::memcpy(static_cast<char*>(all) + r * bytes, brought[r], bytes);
    });
  }
  void AllToAll(const void* mine, std::size_t bytes, void* parts) override {
    place_.Meet(rank_, mine, [&](const std::vector<const void*>& brought) {
      for (std::size_t r = 0; r < brought.size(); ++r)
        std::memcpy(static_cast<char*>(parts) + r * bytes,
                    static_cast<const char*>(brought[r]) + static_cast<std::size_t>(rank_) * bytes,
                    bytes);
    });
  }
  void WaitUntil(const std::function<bool()>& done) override {
    while (!done()) std::this_thread::yield();
  }
  void SetTimeout(double) override {}
  [[noreturn]] void Abort(int) override { throw InternalError("a test that aborts"); }

 private:
  MeetingPlace& place_;
  int rank_, ranks_;
};

// Calls body(world) for each of `ranks` ranks at a time, each in a thread of its own; what each
// threw, by rank.
inline std::vector<std::exception_ptr> RunRanks(
    int ranks, const std::function<void(parallel::World& world)>& body) {
  // They live as long as the program: after an error a thread may still look at them.
  static std::mutex mutex;
  static std::vector<std::shared_ptr<void>> kept;
  const auto places = std::make_shared<std::vector<MeetingPlace>>(2);
  MeetingPlace &small = (*places)[0], &large = (*places)[1];
  small.SetRanks(ranks), large.SetRanks(ranks);
  std::vector<std::shared_ptr<parallel::World>> worlds;
  for (int rank = 0; rank < ranks; ++rank)
    worlds.push_back(std::make_shared<parallel::World>(
        std::vector<std::string>(static_cast<std::size_t>(ranks), "here"),
        std::vector<int>(static_cast<std::size_t>(ranks)), "threads",
        std::make_unique<ThreadCommunicator>(small, rank, ranks),
        std::make_unique<ThreadCommunicator>(large, rank, ranks)));
  {
    const std::lock_guard lock(mutex);
    kept.push_back(places);
    kept.insert(kept.end(), worlds.begin(), worlds.end());
  }
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      parallel::World& world = *worlds[static_cast<std::size_t>(rank)];
      try {
        body(world);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
        small.Leave(), large.Leave();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace ada::testing
