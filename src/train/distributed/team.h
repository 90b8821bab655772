// The processes of a run, as its parts need them: one, or several that share every batch. All calls
// but the plain questions are collective: every process makes them in the same order. A team of one
// hears itself, so that what is gathered of all is its own, and does nothing more.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/exchange.h"
#include "backend/peers.h"
#include "config/config.h"
#include "core/share.h"
#include "parallel/world.h"

namespace ada::train {

// One for each run, made by Train on the stack and passed by reference to everything that takes
// part; it outlives them all. OfOne is for commands and forks, which never share their work.
class Team {
 public:
  // `world` outlives it. ConfigError where parallel.ranks says another number of processes.
  Team(parallel::World& world, const config::ParallelConfig& config);
  Team(const Team&) = delete;
  static Team& OfOne();  // for what no other process takes part in

  int rank() const { return world_.rank(); }
  int ranks() const { return world_.ranks(); }
  bool writes() const { return rank() == 0; }  // files, and what a run says
  parallel::World& world() { return world_; }
  std::string NameOf(int rank) const { return parallel::NameOf(world_, rank); }
  // What stands before the command that starts as many: "mpirun -n 4 ".
  const std::string& launcher() const { return launcher_; }
  int ranks_to_keep() const { return ranks_to_keep_; }  // parallel.ranks of the run's config.yaml
  // This process's share of `whole` that lie in a row, and the largest that a process has.
  ada::Share ShareOf(std::int64_t whole) const { return ada::ShareOf(whole, ranks(), rank()); }
  std::int64_t LargestShare(std::int64_t whole) const {
    return ada::ShareOf(whole, ranks(), 0).count;
  }

  // For a backend, by parallel.statistics and sync_batch_norm.
  backend::Exchanges exchanges() {
    return {decides_together_ ? &all_ : nullptr, joins_norms_ ? &norms_ : nullptr};
  }
  // The same for a backend whose processes have a device each.
  backend::Peers& peers() { return peers_; }
  bool decides_together() const { return decides_together_; }
  bool joins_norms() const { return joins_norms_; }
  // Between the parts of a run.
  backend::Exchange& all() { return all_; }

  std::vector<std::string> AllGatherText(const std::string& mine);

  // While it lives, batch norms take the statistics of each process's own batch.
  class NormsAlone {
   public:
    explicit NormsAlone(Team& team) : team_(team) { team_.norms_.alone = true; }
    ~NormsAlone() { team_.norms_.alone = false; }
    NormsAlone(const NormsAlone&) = delete;

   private:
    Team& team_;
  };

 private:
  // Messages of a backend on the CPU, and of the parts of a run. With `alone` set it acts as a team
  // of one.
  struct Messages final : backend::Exchange {
    explicit Messages(parallel::World& of) : world(of) {}
    int ranks() const override { return alone ? 1 : world.ranks(); }
    void AllGather(const void* mine, std::size_t bytes, void* to) override {
      world.small().AllGather(mine, bytes, to);
    }
    parallel::World& world;
    bool alone = false;
  };

  // Messages of backends whose processes have a device each.
  struct DevicePeers final : backend::Peers {
    explicit DevicePeers(Team& of) : team(of) {}
    int rank() const override { return team.rank(); }
    int ranks() const override { return team.ranks(); }
    void AllGather(const void* mine, std::size_t bytes, void* to) override {
      team.world_.large().AllGather(mine, bytes, to);
    }
    void AllToAll(const void* mine, std::size_t bytes, void* parts) override {
      team.world_.large().AllToAll(mine, bytes, parts);
    }
    void WaitUntil(const std::function<bool()>& done) override { team.world_.WaitUntil(done); }
    bool joins_rules() const override { return team.decides_together_; }
    bool joins_norms() const override { return team.joins_norms_ && !team.norms_.alone; }
    Team& team;
  };

  parallel::World& world_;
  bool decides_together_, joins_norms_;
  std::string launcher_;
  int ranks_to_keep_;
  Messages all_, norms_;
  DevicePeers peers_;
};

// ConfigError where a batch, or a part of one (train.accumulate), of `images` training images has
// fewer images than there are processes.
void CheckParts(const config::Config& config, std::int64_t images, const Team& team);

}  // namespace ada::train
