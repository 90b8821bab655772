// Gathers values and texts of all processes, and checks that their settings and parts of a batch
// are possible.
#include "step/team.h"

#include <algorithm>

#include "error.h"
#include "scaling/policies/policies.h"

namespace ada::step {
namespace {

// Messages: parallel.ranks requests `wanted` processes; there is one, or another number of them.
std::string NotAloneText(int wanted) {
  const std::string asked = std::to_string(wanted);
  return "parallel.ranks: " + asked + ", and this is one process; start it with mpirun -n " +
         asked + " (" +
         (parallel::LibraryName().empty() ? "with a build that has MPI: tools/build.sh --mpi"
                                          : "or srun") +
         "), or say --set parallel.ranks=1";
}
std::string NotSoManyText(int there, int wanted) {
  const std::string asked = std::to_string(wanted), started = std::to_string(there);
  return "parallel.ranks: " + asked + ", and " + started +
         " processes were started; expected as many (mpirun -n " + asked +
         "), or --set parallel.ranks=" + started;
}

}  // namespace

// With one process the rest of the constructor is not needed: no timeout, no launcher in messages,
// and parallel.ranks stays as the configuration has it.
Team::Team(parallel::World& world, const config::ParallelConfig& config)
    : world_(world),
      decides_together_(config.statistics == config::SharedStatistics::kGlobal),
      joins_norms_(config.sync_batch_norm),
      ranks_to_keep_(config.ranks),
      norms_(world.small()) {
  const bool is_other = config.ranks > 0 && config.ranks != world.ranks();
  if (world.ranks() == 1) {
    if (is_other) throw ConfigError(NotAloneText(config.ranks));
    return;
  }
  if (is_other) throw ConfigError(NotSoManyText(world.ranks(), config.ranks));
  world.small().SetTimeout(config.timeout_seconds);
  ranks_to_keep_ = world.ranks();
  launcher_ = "mpirun -n " + std::to_string(world.ranks()) + " ";
}

Team& Team::OfOne() {
  static Team one(parallel::Alone(), {});
  return one;
}

// Messages have one size in all processes: texts are padded to the longest, and the sizes travel
// first.
std::vector<std::string> Team::AllGatherText(const std::string& mine) {
  const std::vector<std::uint64_t> sizes =
      parallel::GatherAll(all(), static_cast<std::uint64_t>(mine.size()));
  const std::uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most == 0) return std::vector<std::string>(sizes.size());
  std::vector<char> padded(mine.begin(), mine.end());
  padded.resize(most);
  const std::vector<char> gathered = parallel::GatherAll(all(), std::move(padded));
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    texts.emplace_back(gathered.data() + rank * most, sizes[rank]);
  return texts;
}

void CheckDecisions(const config::Config& config, const Team& team) {
  if (team.ranks() == 1 || team.decides_together()) return;
  if (!scaling::MakePolicy(config.scaling)->FollowsReference()) return;
  throw ConfigError(
      "parallel.statistics: local does not go with scaling.reference: true: a decision that ends "
      "the run, and the rounding of the gradients' sums, would be each process's own; use "
      "statistics: global");
}

// The smallest part is what is left of the last batch of an epoch when it is cut into
// micro-batches; without at least one image for each process a batch norm, or a loss, would be over
// nothing.
void CheckParts(const config::Config& config, std::int64_t images, const Team& team) {
  const std::int64_t batch = config.data.batch_size, micro = batch / config.train.accumulate;
  const std::int64_t last = config.data.drop_last ? 0 : images % batch;
  const std::int64_t tail = last % micro;
  const bool small_tail = tail > 0 && tail < team.ranks();
  if (micro >= team.ranks() && !small_tail) return;
  const std::string what =
      micro >= team.ranks() ? "the last batch of an epoch ends with " + std::to_string(tail)
      : config.train.accumulate > 1
          ? "train.accumulate cuts batches into parts of " + std::to_string(micro)
          : "data.batch_size is " + std::to_string(micro);
  throw ConfigError("parallel: " + what + (what.ends_with(" 1") ? " image, " : " images, ") +
                    "fewer than the " + std::to_string(team.ranks()) +
                    " processes, which each take a part; use " +
                    (micro >= team.ranks() ? "data.drop_last: true, another data.limit or"
                                           : "a larger data.batch_size or") +
                    " fewer processes");
}

}  // namespace ada::step
