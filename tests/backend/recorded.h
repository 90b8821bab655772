// A table of tests/golden/adaptive and its tensors.
#pragma once
#include <string>

#include "golden_table.h"
#include "io/tensor_files/safetensors.h"

namespace ada::backend::test {

struct Recorded {
  explicit Recorded(const std::string& name)
      : table(ada::testing::ReadGolden("adaptive/" + name + ".csv")),
        file(SafetensorsFile::Open(ADA_SOURCE_DIR "/tests/golden/adaptive/" + name +
                                   ".safetensors")) {}
  ada::testing::GoldenTable table;
  SafetensorsFile file;
};

}  // namespace ada::backend::test
