// The processes of a distributed run, as the parts of a run need them; a run of one process has
// none (null). All calls but the plain questions are collective: every process makes them in the
// same order.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/exchange.h"
#include "backend/peers.h"
#include "config/config.h"
#include "data/loader.h"
#include "parallel/world.h"

namespace ada::train {

class Team {
 public:
  // `world` outlives it. ConfigError where parallel.ranks says another number of processes.
  Team(parallel::World& world, const config::ParallelConfig& config);
  Team(const Team&) = delete;

  int rank() const { return world_.rank(); }
  int ranks() const { return world_.ranks(); }
  bool writes() const { return rank() == 0; }  // files, and what a run says
  parallel::World& world() { return world_; }
  std::string NameOf(int rank) const { return parallel::NameOf(world_, rank); }

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
    explicit NormsAlone(Team* team) : team_(team) { Set(true); }
    ~NormsAlone() { Set(false); }
    NormsAlone(const NormsAlone&) = delete;

   private:
    void Set(bool alone) {
      if (team_ != nullptr) team_->norms_.alone = alone;
    }
    Team* team_;
  };

 private:
  struct Messages final : backend::Exchange {
    explicit Messages(parallel::World& of) : world(of) {}
    int ranks() const override { return alone ? 1 : world.ranks(); }
    void AllGather(const void* mine, std::size_t bytes, void* to) override {
      world.small().AllGather(mine, bytes, to);
    }
    parallel::World& world;
    bool alone = false;
  };

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
  Messages all_, norms_;
  DevicePeers peers_;
};

// What every process takes of a batch of `images`, at most.
inline std::int64_t LargestPart(std::int64_t images, const Team* team) {
  return team == nullptr ? images : (images + team->ranks() - 1) / team->ranks();
}

// The loader of this process's part of every batch. threads: that the process has.
data::LoaderSpec PartOf(data::LoaderSpec spec, const config::Config& config, const Team& team,
                        int threads);

// ConfigError where a batch, or a part of one (train.accumulate), of `images` training images has
// fewer images than there are processes.
void CheckParts(const config::Config& config, std::int64_t images, const Team& team);

}  // namespace ada::train
