// The processes that share a run where each has a device of its own, as their backend sees them:
// what tensors hold goes from device to device (cuda/link.h), and this is the hosts' part in it.
// But for the plain questions all calls are collective: every process makes them in the same order.
#pragma once
#include <cstddef>
#include <functional>

namespace ada::backend {

class Peers {
 public:
  virtual ~Peers() = default;
  virtual int rank() const = 0;   // from 0
  virtual int ranks() const = 0;  // more than 1
  // Messages between hosts; see parallel/communicator.h.
  virtual void AllGather(const void* mine, std::size_t bytes, void* all) = 0;
  virtual void AllToAll(const void* mine, std::size_t bytes, void* parts) = 0;
  // Returns when done() is true. DeviceError that names who does not answer where that takes longer
  // than a process may keep the others waiting. Not collective.
  virtual void WaitUntil(const std::function<bool()>& done) = 0;

  // Whether rules of layers and scales of branches go by the batch of all, and whether batch norms
  // do at present. The same in all processes.
  virtual bool joins_rules() const = 0;
  virtual bool joins_norms() const = 0;
};

}  // namespace ada::backend
