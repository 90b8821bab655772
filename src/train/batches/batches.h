// Batches of a data set as graphs take them, wherever they are made: by the backend that keeps the
// data set (resident_batches.h), or by a loader on the host (batches.cpp). The same images
// either way.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "train/distributed/team.h"

namespace ada::train {

// Used by one thread: by the trainer for training, by an evaluator for each of its data sets. The
// calls alternate: Next, then Feed for parts of the batch from row 0 on, then the passes. What
// rows(), broken(), terms() and Feed give is valid until the next call of Next or Seek.
class Batches {
 public:
  virtual ~Batches() = default;

  virtual std::int64_t batches_per_epoch() const = 0;
  // Goes to batch `index` (from 0, at most batches_per_epoch) of `epoch` (from 0).
  virtual void Seek(std::int64_t epoch, std::int64_t index) = 0;
  // The next batch; goes on into the next epoch. Returns its rows: none where all its images are
  // broken and left out.
  virtual int Next() = 0;

  // What the present batch has: rows, here and in all parts of it (LoaderSpec::part); images that
  // could not be read; what its loss is a mean over (backend::Pass::loss_terms).
  virtual int rows() const = 0;
  virtual int whole_rows() const = 0;
  virtual const std::vector<data::BrokenImage>& broken() const = 0;
  virtual std::int64_t terms() const = 0;
  // Which image of the data set row `row` is; the batches do not shuffle where the data set is
  // resident.
  virtual std::int64_t NumberOf(int row) const = 0;

  // On the host; null where they never were there. Images that are bytes are not among them.
  struct Rows {
    const float* images = nullptr;         // [rows, h, w, c]
    const std::int32_t* tokens = nullptr;  // language: instead, [rows, context]
    backend::Targets targets = {};
  };
  // Rows first..first + rows of the present batch become what `graph` reads in its next pass.
  virtual Rows Feed(graph::Graph& graph, int first, int rows) = 0;
  // The first `rows` rows of the next batch, as far as it is made already, go to the backend while
  // that works on the present one. This is only for speed; only one Batches may do so with one
  // graph.
  virtual void SendAhead(graph::Graph& /*graph*/, int /*rows*/) {}

  // Whether the backend keeps the data set; else whether images go there as bytes, and why it does
  // not keep them, where that is not for the backend to say.
  virtual bool resident() const = 0;
  virtual bool as_bytes() const { return false; }
  virtual std::string why_on_host() const { return ""; }
};

enum class Residence : std::uint8_t {
  kAnywhere,
  kHost,  // an observer reads the images
};
// `dataset` must outlive them, unchanged. Throws ConfigError like data::Loader.
// Resident batches where the backend accepts the data set and `residence` permits it, else a
// loader's.
std::unique_ptr<Batches> MakeBatches(backend::Backend& backend, const data::Dataset& dataset,
                                     const data::LoaderSpec& spec,
                                     Residence residence = Residence::kAnywhere);

// The training batches of a process: all of each batch, or its part of each where several processes
// share the run.

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
