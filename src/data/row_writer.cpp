#include "data/row_writer.h"

namespace ada::data {

std::unique_ptr<RowWriter> MakeRowWriter(const Dataset& dataset, const LoaderSpec& spec) {
  return dataset.tokens ? MakeSequenceRows(dataset, spec) : MakeImageRows(dataset, spec);
}

}  // namespace ada::data
