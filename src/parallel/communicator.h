// What processes that compute one thing together say to each other. Both calls are collective:
// every process makes the same calls in the same order, and none returns before all have come.
#pragma once
#include <cstddef>

namespace ada::parallel {

// One thread at a time may use it; its calls block. Buffers may not overlap. Made by World, which
// outlives it.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;   // from 0
  virtual int ranks() const = 0;  // at least 1

  // all: what each process gave as `mine`, `bytes` each, in the order of ranks. DeviceError where a
  // process does not come in time, or cannot be reached.
  virtual void AllGather(const void* mine, std::size_t bytes, void* all) = 0;
  // mine: a part of `bytes` for each process, in the order of ranks; parts: what each process had
  // for this one, in that order. DeviceError as above.
  virtual void AllToAll(const void* mine, std::size_t bytes, void* parts) = 0;
};

}  // namespace ada::parallel
