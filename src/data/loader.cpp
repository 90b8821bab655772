// Worker threads fill a ring of batches ahead of the caller. Which batch is which is BatchMaker's
// work; this file is only about threads.
#include "data/loader.h"

#include <sched.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "data/batch_maker.h"
#include "error.h"
#include "io/run_in_parallel.h"

namespace ada::data {
namespace {

// A thread that wakes up may push another one off its core at once; this one, whose batch is wanted
// some steps later, waits for its turn instead. A wish: nothing depends on it.
void WakeUpQuietly() {
  const sched_param none{};
  sched_setscheduler(/*this thread*/ 0, SCHED_BATCH, &none);
}

}  // namespace

// Batch `s` lives in slot s % slots. Workers make batches below released + slots, part by part in
// order; all below released are the caller's no more. So the batch that the caller holds is never
// written to.
struct Loader::Impl {
  // A slot holds a batch of the ring and how far it is: workers write `batch` without the lock,
  // each its own rows.
  struct Slot {
    Batch batch;
    std::exception_ptr error;
    int failed_part = 0;  // the first of those that failed, which `error` is of; -1: none began
    int parts_done = 0;
    bool ready = false;
  };

  Impl(const Dataset& dataset, const LoaderSpec& spec)
      : maker(dataset, spec),
        workers(spec.workers),
        slots(spec.workers == 0 ? 1 : static_cast<std::size_t>(spec.prefetch) + 1) {}
  ~Impl();

  // Does nothing where they run already; after a refused thread the next call tries again.
  void StartWorkers();
  // Runs in each worker's thread until `stop`.
  void Work();
  // Calls `make` and returns what it throws; null: nothing.
  template <class Make>
  static std::exception_ptr Try(Make make) noexcept;
  static void Keep(std::exception_ptr error, int part, Slot* slot);
  Slot& SlotOf(std::int64_t sequence) {
    return slots[static_cast<std::size_t>(sequence) % slots.size()];
  }
  std::int64_t window() const { return static_cast<std::int64_t>(slots.size()); }

  BatchMaker maker;
  const int workers;
  std::vector<Slot> slots;
  std::vector<std::thread> threads;
  std::int64_t next = 0;  // what Next returns; the caller's thread alone

  std::mutex mutex;  // guards the following, and all of the slots except the batch
  std::condition_variable work, done;
  // Both number batches from the first of epoch 0.
  std::int64_t next_to_make = 0, released = 0;
  int next_part = 0;  // of next_to_make
  // Counts the workers that are making a part at this moment, without the lock.
  int busy = 0;
  bool stop = false;
};

Loader::Impl::~Impl() {
  {
    const std::lock_guard lock(mutex);
    stop = true;
  }
  work.notify_all();
  for (std::thread& thread : threads) thread.join();
}

void Loader::Impl::StartWorkers() {
  try {
    while (static_cast<int>(threads.size()) < workers) threads.emplace_back([this] { Work(); });
  } catch (const std::system_error& error) {
    throw ThreadRefused("loads data (" + std::to_string(threads.size() + 1) + " of " +
                            std::to_string(workers) + ")",
                        error);
  }
}

template <class Make>
std::exception_ptr Loader::Impl::Try(Make make) noexcept {
  try {
    make();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

// The error of the first part is the batch's, whoever was there first.
void Loader::Impl::Keep(std::exception_ptr error, int part, Slot* slot) {
  if (!error || (slot->error && slot->failed_part < part)) return;
  slot->error = std::move(error);
  slot->failed_part = part;
}

// A worker makes one part after the other; whoever ends the last one of a batch finishes it.
void Loader::Impl::Work() {
  WakeUpQuietly();
  const int parts = maker.parts();
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [this] { return stop || next_to_make < released + window(); });
    if (stop) return;
    const std::int64_t sequence = next_to_make;
    const int part = next_part;
    Slot& slot = SlotOf(sequence);
    // The worker that takes the first part of a batch empties its slot for all. Begin runs under
    // the lock: it is short, and no part may be made before the vectors have their sizes.
    if (part == 0) {
      slot.error = nullptr;
      slot.parts_done = 0;
      Keep(Try([&] { maker.Begin(sequence, &slot.batch); }), -1, &slot);
    }
    if (++next_part == parts) next_part = 0, ++next_to_make;
    // Where Begin failed, the parts are still counted, so that the slot becomes ready with its
    // error.
    const bool begun = !slot.error || slot.failed_part >= 0;
    ++busy;
    lock.unlock();
    std::exception_ptr error;
    if (begun) error = Try([&] { maker.MakePart(sequence, part, &slot.batch); });
    lock.lock();
    Keep(error, part, &slot);
    if (++slot.parts_done == parts) {
      // Mixing needs all rows and takes its time, so it is done without the lock; no other thread
      // touches the batch, since all of its parts are done.
      if (!slot.error) {
        lock.unlock();
        error = Try([&] { maker.Finish(sequence, &slot.batch); });
        lock.lock();
        Keep(error, parts, &slot);
      }
      slot.ready = true;
    }
    --busy;
    done.notify_all();
  }
}

Loader::Loader(const Dataset& dataset, const LoaderSpec& spec)
    : impl_(std::make_unique<Impl>(dataset, spec)) {}
Loader::~Loader() = default;

std::int64_t Loader::batches_per_epoch() const { return impl_->maker.batches_per_epoch(); }

void Loader::Seek(std::int64_t epoch, std::int64_t index) {
  ADA_CHECK(epoch >= 0 && index >= 0 && index <= batches_per_epoch());
  Impl& impl = *impl_;
  {
    std::unique_lock lock(impl.mutex);
    impl.released = impl.next_to_make - impl.window();  // no new work while the old is finished
    // Parts that are being made are waited for; parts that nobody began are given up.
    impl.done.wait(lock, [&impl] { return impl.busy == 0; });
    for (Impl::Slot& slot : impl.slots) slot.ready = false;
    impl.next = epoch * batches_per_epoch() + index;
    impl.next_to_make = impl.released = impl.next;
    impl.next_part = 0;
  }
  impl.StartWorkers();
  impl.work.notify_all();
}

const Batch& Loader::Next() {
  Impl& impl = *impl_;
  impl.StartWorkers();
  Impl::Slot& slot = impl.SlotOf(impl.next);
  if (impl.workers == 0) {
    slot.error = Impl::Try([&] { impl.maker.Make(impl.next, &slot.batch); });
  } else {
    std::unique_lock lock(impl.mutex);
    // Asking for the next batch gives back the ones before it, whose slots workers may fill again.
    for (; impl.released < impl.next; ++impl.released) impl.SlotOf(impl.released).ready = false;
    impl.work.notify_all();
    impl.done.wait(lock, [&slot] { return slot.ready; });
  }
  if (slot.error) std::rethrow_exception(slot.error);
  ++impl.next;
  return slot.batch;
}

const Batch* Loader::Ahead() {
  Impl& impl = *impl_;
  // A lone slot holds the batch that the caller has.
  if (impl.workers == 0 || impl.slots.size() < 2) return nullptr;
  const std::lock_guard lock(impl.mutex);
  const Impl::Slot& slot = impl.SlotOf(impl.next);
  return slot.ready && !slot.error ? &slot.batch : nullptr;
}

}  // namespace ada::data
