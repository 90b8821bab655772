// The layers of a dump (log.dump), or of any file with NAME.x, NAME.w and NAME.dy, whose products
// what-if judges.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "judge/operand_judge.h"

namespace ada::study {

// Returns the names of the linear layers and convolutions, in the order of the file. Throws
// DataError where there is none.
std::vector<std::string> DumpedMatmuls(const SafetensorsFile& file);
// Reads each of them and calls `use` with it. Throws DataError also where tensors do not fit
// together.
void EachDumpedMatmul(const SafetensorsFile& file,
                      const std::function<void(const judge::MatmulTensors&)>& use);

// How a convolution's window moves: height, width.
struct WindowSteps {
  std::int64_t stride[2] = {1, 1};
};

// The steps of one of these: what the file's metadata say ("2x1"), else what follows from the
// shapes of x and dy.
WindowSteps StepsOf(const SafetensorsFile& file, const judge::MatmulTensors& layer);

}  // namespace ada::study
