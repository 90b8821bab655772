// Messages between the processes that compute one thing together: the one interface of
// communication. A process that was started without others has one that answers itself (world.cpp),
// processes of an MPI launcher one of MPI's (mpi/mpi_world.cpp), tests one whose processes are
// threads. Between GPUs tensors travel without the hosts: backend/cuda/link.h.
#pragma once
#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

namespace ada::parallel {

// Belongs to a World, which makes it and outlives its users. One thread at a time may use it; its
// calls block. AllGather and AllToAll are collective: every process makes the same calls in the
// same order, and none returns before all have come. Buffers may not overlap.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;   // from 0
  virtual int ranks() const = 0;  // at least 1; 1: there is nobody to talk to now

  // all: what each process gave as `mine`, `bytes` each, in the order of ranks. DeviceError where a
  // process does not come in time, or cannot be reached.
  virtual void AllGather(const void* mine, std::size_t bytes, void* all) = 0;
  // mine: a part of `bytes` for each process, in the order of ranks; parts: what each process had
  // for this one, in that order. DeviceError as above.
  virtual void AllToAll(const void* mine, std::size_t bytes, void* parts) = 0;
  // Returns when done() is true, which only the others may make it; DeviceError as above. Not
  // collective.
  virtual void WaitUntil(const std::function<bool()>& done) = 0;

  // How long the calls above wait for the others.
  virtual void SetTimeout(double seconds) = 0;
  // Ends all processes with this exit code.
  [[noreturn]] virtual void Abort(int exit_code) = 0;
};

// Whether there are others to talk to; null: what this process has itself is all there is.
inline bool IsShared(const Communicator* communicator) {
  return communicator != nullptr && communicator->ranks() > 1;
}

// Returns the `mine` of every process, in rank order.
template <class T>
std::vector<T> GatherAll(Communicator& communicator, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(communicator.ranks()));
  communicator.AllGather(&mine, sizeof mine, all.data());
  return all;
}
// The same of as many values; those of process r begin at r * mine.size().
template <class T>
std::vector<T> GatherAll(Communicator& communicator, std::vector<T> mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  if (!IsShared(&communicator)) return mine;
  std::vector<T> all(static_cast<std::size_t>(communicator.ranks()) * mine.size());
  communicator.AllGather(mine.data(), mine.size() * sizeof(T), all.data());
  return all;
}

}  // namespace ada::parallel
