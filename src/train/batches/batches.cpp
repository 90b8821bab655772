#include "train/batches/batches.h"

#include <utility>

#include "train/batches/host_batches.h"
#include "train/batches/resident_batches.h"

namespace ada::train {

std::unique_ptr<Batches> MakeBatches(backend::Backend& backend, const data::Dataset& dataset,
                                     const data::LoaderSpec& spec, Residence residence) {
  if (residence == Residence::kHost) return std::make_unique<HostBatches>(dataset, spec);
  std::unique_ptr<Batches> resident = ResidentBatches::Make(backend, dataset, spec);
  if (resident) return resident;
  data::LoaderSpec on_host = spec;
  on_host.as_bytes = backend.takes_bytes() && data::ComeAsBytes(dataset, spec);
  return std::make_unique<HostBatches>(dataset, on_host);
}

}  // namespace ada::train
