// Parts of the backend that can be done without, one by one: to find, on a device on which
// something is wrong or slow, the part that it is. Each leaves the bytes of a run as they are
// wherever libraries give the same sums.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

namespace ada::backend {

// As the backend is without anybody's asking. The variables of the environment stand next to them.
struct CudaSwitches {
  // Programmatic dependent launches: none; a kernel lets the next one come when it has done its
  // work; or when it begins.
  enum class Pdl : std::uint8_t { kOff, kLate, kEarly };

  bool graphs = true;  // ADA_CUDA_GRAPHS: steps are recorded and replayed
  bool side_stream =
      true;  // ADA_CUDA_SIDE_STREAM: weight gradients run at the same time as data gradients
  Pdl pdl = Pdl::kLate;    // ADA_CUDA_PDL=off|late|early
  bool plain = true;       // ADA_CUDA_PLAIN: kernels for 16 bits take eight values at a time
  bool last_block = true;  // ADA_CUDA_LAST_BLOCK: a kernel's last block goes on with the next one
  bool fused = true;  // ADA_CUDA_FUSED: kernels that need not wait for each other are one launch
  bool attention = true;  // ADA_CUDA_ATTENTION: short rows of attention in kernels of our own,
                          // where `fused` is set too, else in products of a library
  bool cublas = true;     // ADA_CUDA_CUBLAS: convolutions of 1x1 are cuBLAS's, else cuDNN's
  bool round = true;      // ADA_CUDA_ROUND: libraries round outputs and data gradients
  int cudnn_skip = 0;     // ADA_CUDNN_SKIP: so many of cuDNN's best engines are passed over
  int scores = 1 << 25;   // ADA_CUDA_SCORES: those of attention that lie in memory at a time, where
                          // a head of keys has no more
  std::string trace;    // ADA_CUDA_TRACE: the file to which the times of launches go; not a part of
                        // the backend's name, as no kernel does anything else
  bool poison = false;  // ADA_CUDA_POISON: memory that nobody promises to be zero is NaN

  friend bool operator==(const CudaSwitches&, const CudaSwitches&) = default;
};

namespace cuda {

// Returns `set`, overridden by value(name) of each variable (null: not set). Throws DeviceError for
// an invalid value and lists the valid ones.
using VariableValue = std::function<const char*(const char* name)>;
CudaSwitches SwitchesOf(const CudaSwitches& set, const VariableValue& value);

// ", ADA_CUDA_GRAPHS=0, ADA_CUDNN_SKIP=2" of those that are other than made; a part of a backend's
// name.
std::string SwitchesText(const CudaSwitches& switches);

}  // namespace cuda
}  // namespace ada::backend
