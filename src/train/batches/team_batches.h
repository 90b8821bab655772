// The training batches of a process: all of each batch, or its part of each where several processes
// share the run.
#pragma once
#include <memory>

#include "config/config.h"
#include "data/loader.h"
#include "train/batches/batches.h"
#include "train/distributed/team.h"

namespace ada::train {

// Where the images of training lie: a probe reads them on the host.
Residence ResidenceOf(const config::Config& config);

// `threads`: that the process has. Several processes make their parts on the host, with no more
// workers than threads where data.workers does not say how many; `residence` is for one.
// Throws ConfigError like MakeBatches. Each process makes only its own rows, but all of them count
// whole batches alike.
std::unique_ptr<Batches> MakeBatchesOfTeam(backend::Backend& backend, const data::Dataset& dataset,
                                           data::LoaderSpec spec, Residence residence,
                                           const config::Config& config, const Team& team,
                                           int threads);

}  // namespace ada::train
