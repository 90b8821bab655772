// Where the batches of a data set are made, and making them.
#pragma once
#include <cstdint>
#include <memory>

#include "config/config.h"
#include "step/batches/batches.h"
#include "step/team.h"

namespace ada::step {

enum class Residence : std::uint8_t {
  kAnywhere,
  kHost,  // an observer reads the images
};
// `dataset` must outlive them, unchanged. Throws ConfigError like data::Loader.
// Makes resident batches if the backend accepts the data set and `residence` permits it, otherwise
// batches of a loader.
std::unique_ptr<Batches> MakeBatches(backend::Backend& backend, const data::Dataset& dataset,
                                     const data::LoaderSpec& spec,
                                     Residence residence = Residence::kAnywhere);

// Where the training images are kept: on the host if a probe reads them.
Residence ResidenceOf(const config::Config& config);

// The training batches of a process: all of each batch, or its part of each where several processes
// share the run. `threads`: the number of threads of the process. Several processes make their
// parts on the host, each with at most as many workers as threads unless data.workers is given;
// `residence` matters for one process only. Throws ConfigError like MakeBatches. Each process makes
// only its own rows, but all of them count whole batches in the same way.
std::unique_ptr<Batches> MakeBatchesOfTeam(backend::Backend& backend, const data::Dataset& dataset,
                                           data::LoaderSpec spec, Residence residence,
                                           const config::Config& config, const Team& team,
                                           int threads);

}  // namespace ada::step
