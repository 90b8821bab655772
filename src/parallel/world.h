// The processes that a launcher (mpirun, srun) started together, and this one's place among them. A
// process that was started alone is a world of one.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace ada::parallel {

// Made once, by main, and handed down. Its communicators are its own.
class World {
 public:
  // This process, whoever else was started. All that it gives to others it gets back, at the price
  // of a copy.
  World();
  // By rank: what the machine calls itself. Processes of one `node` share its memory, whatever the
  // names: nodes count from 0 in the order of their first ranks. library: "Open MPI v4.1.4".
  World(std::vector<std::string> hosts, std::vector<int> nodes, std::string library,
        std::unique_ptr<Communicator> small, std::unique_ptr<Communicator> large);

  int rank() const { return small_->rank(); }
  int ranks() const { return small_->ranks(); }
  const std::vector<std::string>& hosts() const { return hosts_; }
  const std::vector<int>& nodes() const { return nodes_; }
  const std::string& library() const { return library_; }  // of one process ""

  // Two of them, so that two threads may talk at a time: each belongs to one thread.
  Communicator& small() { return *small_; }
  Communicator& large() { return *large_; }

 private:
  std::vector<std::string> hosts_;
  std::vector<int> nodes_;
  std::string library_;
  std::unique_ptr<Communicator> small_, large_;
};

// Returns a world of one if this process was started by itself. DeviceError if a launcher announces
// others and they cannot be reached, or if the build has no MPI.
World StartWorld();
World& Alone();  // of one process, for the whole program

// The MPI library of the build, for --version; "": none.
std::string LibraryName();

// "4 processes on 2 hosts: a (ranks 0-1), b (ranks 2-3)".
std::string DescribeProcesses(const World& world);
// "rank 2 of 4 (host b)"
std::string NameOf(const World& world, int rank);
// Processes on this one's node, itself included.
int RanksOfNode(const World& world);
// Cores that this process may take so that all of its node have one: of each core that it may use,
// its share among those that may use it too, and no more than its share of the quota of time
// (io/machine.h; `root`: its prefix). At least 1. Collective, on small().
int CoresOf(World& world, const std::string& root = "");

// Reports an error that ends this process, then ends all of them; once, even if several fail.
// `tell` prints it. Rank 0 does so at once, the others only if rank 0 has not ended them before.
[[noreturn]] void EndAll(World& world, int exit_code, void (*tell)(const std::string& message),
                         const std::string& message);

}  // namespace ada::parallel
