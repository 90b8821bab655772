#include "train/batches/team_batches.h"

#include <algorithm>

namespace ada::train {

Residence ResidenceOf(const config::Config& config) {
  const bool read = config.log.probe_every > 0 || config.log.dump_on != config::DumpOn::kNever;
  return read ? Residence::kHost : Residence::kAnywhere;
}

std::unique_ptr<Batches> MakeBatchesOfTeam(backend::Backend& backend, const data::Dataset& dataset,
                                           data::LoaderSpec spec, Residence residence,
                                           const config::Config& config, const Team& team,
                                           int threads) {
  if (team.ranks() > 1) {
    spec.part = {team.rank(), team.ranks(), config.data.batch_size / config.train.accumulate};
    if (!config.data.workers) spec.workers = std::min(spec.workers, std::max(1, threads));
    residence = Residence::kHost;
  }
  return MakeBatches(backend, dataset, spec, residence);
}

}  // namespace ada::train
