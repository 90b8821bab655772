#include "train/distributed/team.h"

#include <algorithm>

#include "core/error.h"

namespace ada::train {

Team::Team(parallel::World& world, const config::ParallelConfig& config)
    : world_(world),
      decides_together_(config.statistics == config::SharedStatistics::kGlobal),
      joins_norms_(config.sync_batch_norm),
      all_(world),
      norms_(world),
      peers_(*this) {
  if (config.ranks > 0 && config.ranks != world.ranks())
    throw ConfigError("parallel.ranks: " + std::to_string(config.ranks) + ", and " +
                      std::to_string(world.ranks()) +
                      " processes were started; expected as many (mpirun -n " +
                      std::to_string(config.ranks) +
                      "), or --set parallel.ranks=" + std::to_string(world.ranks()));
  world.SetTimeout(config.timeout_seconds);
}

std::vector<std::string> Team::AllGatherText(const std::string& mine) {
  const std::vector<std::uint64_t> sizes =
      backend::GatherAll(all_, static_cast<std::uint64_t>(mine.size()));
  const std::uint64_t most = *std::max_element(sizes.begin(), sizes.end());
  if (most == 0) return std::vector<std::string>(sizes.size());
  std::vector<char> padded(most);
  std::copy(mine.begin(), mine.end(), padded.begin());
  const std::vector<char> all = backend::GatherAll(all_, padded);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    texts.emplace_back(all.data() + rank * most, sizes[rank]);
  return texts;
}

data::LoaderSpec PartOf(data::LoaderSpec spec, const config::Config& config, const Team& team,
                        int threads) {
  spec.part = {team.rank(), team.ranks(), config.data.batch_size / config.train.accumulate};
  if (!config.data.workers) spec.workers = std::min(spec.workers, std::max(1, threads));
  return spec;
}

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

}  // namespace ada::train
