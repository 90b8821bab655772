// Batches of a data set as graphs take them: made where the graph reads them, if the backend keeps
// the data set (resident_data.h), else by a loader on the host. The same images either way.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "backend/backend.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "train/resident_data.h"

namespace ada::train {

class Batches {
 public:
  enum class Where : std::uint8_t {
    kAnywhere,
    kHost,  // somebody looks at the images
  };
  // `dataset` must outlive it, unchanged. Throws ConfigError like data::Loader.
  Batches(backend::Backend& backend, const data::Dataset& dataset, const data::LoaderSpec& spec,
          Where where = Where::kAnywhere);

  bool resident() const { return resident_ != nullptr; }
  std::int64_t batches_per_epoch() const;
  // Goes to batch `index` (from 0, at most batches_per_epoch) of `epoch` (from 0).
  void Seek(std::int64_t epoch, std::int64_t index);
  // The next batch; goes on into the next epoch. Returns its rows.
  int Next();

  // On the host; null where they never were there.
  struct Rows {
    const float* images = nullptr;  // [rows, h, w, c]
    const std::int32_t* labels = nullptr;
  };
  // Rows first..first + rows of the present batch become what `graph` reads in its next pass.
  Rows Feed(graph::Graph& graph, int first, int rows);

 private:
  std::unique_ptr<ResidentData> resident_;
  std::optional<data::Loader> loader_;  // where resident_ is null
  ResidentData::Batch resident_batch_;
  const data::Batch* batch_ = nullptr;
};

}  // namespace ada::train
