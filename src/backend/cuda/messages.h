// Messages about a GPU that cannot be used or whose memory is used up, and about how ops run.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ada::backend::cuda {

// "13.0" of 13000, the way CUDA writes its versions.
std::string CudaVersionText(int version);
// driver: the CUDA version that the driver supports; 0: there is no driver.
std::string NoDriverText(int driver, int runtime);
// visible: CUDA_VISIBLE_DEVICES; null: not set.
std::string NoDeviceText(const char* visible);
std::string NoSuchDeviceText(int count);
// "" where the GPU is new enough.
std::string TooOldText(const std::string& name, int major, int minor);

// For a chip without 8-bit units; "" where there are some.
std::string NoFp8Text(const std::string& name, int major, int minor);

struct MemoryState {
  std::uint64_t wanted = 0, allocated = 0;  // now, and by this run before
  std::uint64_t free = 0, total = 0;        // of the device
};
std::string OutOfMemoryText(int index, const MemoryState& memory);

// Lines about how ops run, for Backend::Diagnostics and Backend::Warnings.
class DiagnosticLines {
 public:
  // Each line is kept once.
  void Diagnose(const std::string& line);
  // Operands of 16 bits of this matmul ("weight gradient") are widened, and it multiplies fp32
  // numbers, which Tensor Cores do not.
  void Widened(const std::string& layer, const std::string& product);
  // Steps, or parts of them, are launched kernel by kernel, because the device refused to record
  // them. The first reason is kept.
  void NotRecorded(const std::string& why);

  const std::vector<std::string>& diagnostics() const { return diagnostics_; }
  // At most two lines: one for all that were widened, one for what was not recorded.
  std::vector<std::string> Warnings() const;

 private:
  struct Layer {
    std::string name;
    std::vector<std::string> products;
  };
  std::vector<std::string> diagnostics_;
  std::vector<Layer> widened_;  // in the order in which they were made
  std::string not_recorded_;
};

}  // namespace ada::backend::cuda
