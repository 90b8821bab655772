// The processes of a run, as its parts need them: one, or several that share every batch. All calls
// except the plain getters are collective: every process makes them in the same order. In a team of
// one, gathering just returns the process's own value.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/communicators.h"
#include "config/config.h"
#include "io/run_in_parallel.h"
#include "parallel/world.h"

namespace ada::step {

// One for each run, made by Train on the stack and passed by reference to everything that takes
// part; it outlives them all. OfOne is for commands and forks, which never share their work.
class Team {
 public:
  // `world` must outlive it. Throws ConfigError if parallel.ranks is another number of processes.
  Team(parallel::World& world, const config::ParallelConfig& config);
  Team(const Team&) = delete;
  static Team& OfOne();  // for work that no other process takes part in

  int rank() const { return world_.rank(); }
  int ranks() const { return world_.ranks(); }
  bool writes() const { return rank() == 0; }  // files, and the messages of a run
  parallel::World& world() { return world_; }
  std::string NameOf(int rank) const { return parallel::NameOf(world_, rank); }
  // The start of the command that launches as many processes: "mpirun -n 4 ".
  const std::string& launcher() const { return launcher_; }
  int ranks_to_keep() const { return ranks_to_keep_; }  // parallel.ranks of the run's config.yaml
  // This process's share of `whole` consecutive items, and the largest share of any process.
  ada::Share ShareOf(std::int64_t whole) const { return ada::ShareOf(whole, ranks(), rank()); }
  std::int64_t LargestShare(std::int64_t whole) const {
    return ada::ShareOf(whole, ranks(), 0).count;
  }

  // For messages between the same parts of a run in different processes.
  parallel::Communicator& all() { return world_.small(); }
  // Communicators for a backend, chosen by parallel.statistics and sync_batch_norm.
  backend::Communicators communicators() {
    return {decides_together_ ? &all() : nullptr, joins_norms_ ? &norms_ : nullptr,
            ranks() > 1 ? &world_.large() : nullptr};
  }
  bool decides_together() const { return decides_together_; }
  bool joins_norms() const { return joins_norms_; }

  std::vector<std::string> AllGatherText(const std::string& mine);

  // While it exists, batch norms use the statistics of each process's own batch.
  class LocalNormsScope {
   public:
    explicit LocalNormsScope(Team& team) : team_(team) { team_.norms_.alone = true; }
    ~LocalNormsScope() { team_.norms_.alone = false; }
    LocalNormsScope(const LocalNormsScope&) = delete;

   private:
    Team& team_;
  };

 private:
  // The communicator of batch norms: with `alone` set it acts as one of a single process.
  struct NormsCommunicator final : parallel::Communicator {
    explicit NormsCommunicator(parallel::Communicator& of) : all(of) {}
    int rank() const override { return alone ? 0 : all.rank(); }
    int ranks() const override { return alone ? 1 : all.ranks(); }
    void AllGather(const void* mine, std::size_t bytes, void* to) override {
      all.AllGather(mine, bytes, to);
    }
    void AllToAll(const void* mine, std::size_t bytes, void* parts) override {
      all.AllToAll(mine, bytes, parts);
    }
    void WaitUntil(const std::function<bool()>& done) override { all.WaitUntil(done); }
    void SetTimeout(double seconds) override { all.SetTimeout(seconds); }
    [[noreturn]] void Abort(int exit_code) override {
      all.Abort(exit_code);
      std::abort();  // not reached: the compiler does not know that the virtual call never returns
    }
    parallel::Communicator& all;
    bool alone = false;
  };

  parallel::World& world_;
  bool decides_together_, joins_norms_;
  std::string launcher_;
  int ranks_to_keep_;
  NormsCommunicator norms_;
};

// Throws ConfigError if several processes decide each for itself under a policy whose errors, and
// whose rounding of summed gradients, follow its decisions (scaling.reference).
void CheckDecisions(const config::Config& config, const Team& team);
// Throws ConfigError if some batch of `images` training images, or a part of one
// (train.accumulate), has fewer images than there are processes.
void CheckParts(const config::Config& config, std::int64_t images, const Team& team);

}  // namespace ada::step
