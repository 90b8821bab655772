// Batches of a data set as graphs take them, wherever they are made: by the backend that keeps the
// data set (resident_batches.h), or by a loader on the host. The images are the same either way.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "step/team.h"

namespace ada::step {

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

  // Properties of the current batch: its rows, here and in all parts of it (LoaderSpec::part);
  // images that could not be read; how many terms its loss has (backend::Pass::loss_terms).
  virtual int rows() const = 0;
  virtual int whole_rows() const = 0;
  virtual const std::vector<data::BrokenImage>& broken() const = 0;
  virtual std::int64_t terms() const = 0;
  // Returns the index in the data set of row `row`. Batches that are resident on the backend must
  // not be shuffled.
  virtual std::int64_t NumberOf(int row) const = 0;

  // Pointers to host memory; null if the values were never there, as for images sent as bytes.
  struct Rows {
    const float* images = nullptr;         // [rows, h, w, c]
    const std::int32_t* tokens = nullptr;  // language: instead, [rows, context]
    backend::Targets targets = {};
  };
  // Gives rows first..first + rows of the current batch to `graph`, for its next pass.
  virtual Rows Feed(graph::Graph& graph, int first, int rows) = 0;
  // Sends the first `rows` rows of the next batch, if that is already made, to the backend while
  // it works on the current one. This is only for speed; for one graph only one Batches may do
  // so.
  virtual void SendAhead(graph::Graph& /*graph*/, int /*rows*/) {}

  // Whether the backend keeps the data set; whether images are sent to it as bytes; and why it does
  // not keep the data set, unless that was the backend's own decision.
  virtual bool resident() const = 0;
  virtual bool as_bytes() const { return false; }
  virtual std::string why_on_host() const { return ""; }
};

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
