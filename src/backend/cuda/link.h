// Messages between the devices of processes that share a run, one a process. Every process asks for
// the same messages in the same order; they are part of a stream's work, so that nobody waits for
// them on the host and a recording holds them like kernels. Nothing is added up on the way: who
// gathers sums in the order of processes, so that the bytes do not depend on how messages travel.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backend/communicators.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

class Link {
 public:
  // communicators.hosts is not null.
  Link(Stream& stream, const Communicators& communicators)
      : hosts_(*communicators.hosts),
        communicators_(communicators),
        stream_(stream),
        side_(stream.MakeSide()),
        begin_(stream.MakeEvent()),
        end_(side_->MakeEvent()) {}
  virtual ~Link() = default;
  Link(const Link&) = delete;
  int rank() const { return hosts_.rank(); }
  int ranks() const { return hosts_.ranks(); }
  // Whether rules of layers and scales of branches go by the batch of all, and whether batch norms
  // do at present. The same in all processes.
  bool joins_rules() const { return parallel::IsShared(communicators_.rules); }
  bool joins_norms() const { return parallel::IsShared(communicators_.norms); }

  // What `body` asks `side` for, messages among it, is done at the same time as the stream's own
  // work, in the one order that all messages have: after what the stream was asked for before.
  void Aside(const std::function<void(Stream& side)>& body) {
    ++asides_;
    begin_->Mark();
    side_->WaitFor(*begin_);
    body(*side_);
    end_->Mark();
    joined_ = false;
  }
  // What the stream is asked for from now on comes after all that was asked for aside.
  void Join() {
    if (!joined_) stream_.WaitFor(*end_);
    joined_ = true;
  }

  // How often this process has asked for messages so far.
  std::uint64_t asides() const { return asides_; }
  // Whether `mine` is true in every process. All processes call it at the same place.
  bool TrueInAll(bool mine) {
    const std::vector<char> all = parallel::GatherAll(hosts_, static_cast<char>(mine));
    return std::all_of(all.begin(), all.end(), [](char each) { return each != 0; });
  }

  // Messages; memory is the device's, and the two blocks do not overlap.
  //
  // all: what each process has as `mine`, `bytes` each, in their order.
  virtual void AllGather(Stream& side, const void* mine, std::size_t bytes, void* all) = 0;
  // mine: `bytes` for each process, in their order; parts: what each sends to this one.
  virtual void AllToAll(Stream& side, const void* mine, std::size_t bytes, void* parts) = 0;

  // Gather between the stream's own work before and after it.
  void AllGatherInStream(const void* mine, std::size_t bytes, void* all) {
    Aside([&](Stream& side) { AllGather(side, mine, bytes, all); });
    Join();
  }

 protected:
  parallel::Communicator& hosts_;  // messages between the hosts of the devices

 private:
  const Communicators communicators_;
  Stream& stream_;
  std::unique_ptr<Stream> side_;
  std::unique_ptr<Event> begin_, end_;  // of the stream's work; of what is aside
  bool joined_ = true;
  std::uint64_t asides_ = 0;
};

// Null: nothing is shared; what a process has itself is all there is.
inline Link* RulesLink(Link* link) {
  return link != nullptr && link->joins_rules() ? link : nullptr;
}
inline Link* NormsLink(Link* link) {
  return link != nullptr && link->joins_norms() ? link : nullptr;
}

}  // namespace ada::backend::cuda
