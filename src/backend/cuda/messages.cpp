// See messages.h.
#include "backend/cuda/messages.h"

#include <algorithm>

#include "io/text.h"

namespace ada::backend::cuda {

std::string CudaVersionText(int version) {
  return std::to_string(version / 1000) + '.' + std::to_string(version % 1000 / 10);
}

std::string NoDriverText(int driver, int runtime) {
  if (driver == 0)
    return "no NVIDIA driver is installed (libcuda.so.1 was not found); install the driver, or "
           "start the container with access to the GPU";
  return "the NVIDIA driver is too old: it knows CUDA " + CudaVersionText(driver) +
         ", and this program is built with CUDA " + CudaVersionText(runtime) +
         "; update the driver";
}

std::string NoDeviceText(const char* visible) {
  if (visible == nullptr) return "the NVIDIA driver finds no GPU";
  return std::string("the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is '") + visible +
         "': unset it to see all)";
}

std::string NoSuchDeviceText(int count) {
  return count == 1 ? "the only GPU is cuda:0"
                    : "the GPUs are cuda:0 to cuda:" + std::to_string(count - 1);
}

std::string TooOldText(const std::string& name, int major, int minor) {
  constexpr int kTuring = 75;
  if (major * 10 + minor >= kTuring) return "";
  return name + " (sm_" + std::to_string(major) + std::to_string(minor) +
         ") is too old; sm_75 (Turing) or newer is needed";
}

std::string NoFp8Text(const std::string& name, int major, int minor) {
  constexpr int kAda = 89;
  if (major * 10 + minor >= kAda) return "";
  return "device.fp8: hardware: " + name + " (sm_" + std::to_string(major) + std::to_string(minor) +
         ") has no units for fp8, which sm_89 (Ada) and newer have; use device.fp8: emulated";
}

std::string OutOfMemoryText(int index, const MemoryState& memory) {
  return "device cuda:" + std::to_string(index) + ": out of memory: " + HumanBytes(memory.wanted) +
         " more are needed; this run holds " + HumanBytes(memory.allocated) + ", and " +
         HumanBytes(memory.free) + " of the device's " + HumanBytes(memory.total) +
         " are free; use a smaller data.batch_size, the same batch in parts (train.accumulate), or "
         "a GPU that nobody else uses";
}

namespace {

void AddOnce(std::vector<std::string>& lines, const std::string& line) {
  if (!Contains(lines, line)) lines.push_back(line);
}

}  // namespace

void DiagnosticLines::Diagnose(const std::string& line) { AddOnce(diagnostics_, line); }

void DiagnosticLines::Widened(const std::string& layer, const std::string& product) {
  auto found = std::find_if(widened_.begin(), widened_.end(),
                            [&](const Layer& known) { return known.name == layer; });
  if (found == widened_.end()) found = widened_.insert(found, {layer, {}});
  AddOnce(found->products, product);
}

void DiagnosticLines::NotRecorded(const std::string& why) {
  if (not_recorded_.empty()) not_recorded_ = why;
}

std::vector<std::string> DiagnosticLines::Warnings() const {
  constexpr std::size_t kMostLayers = 8;
  std::vector<std::string> warnings, layers;
  for (const Layer& layer : widened_)
    layers.push_back(layer.name + " (" + FirstNames(layer.products, layer.products.size()) + ")");
  if (!layers.empty())
    warnings.push_back(
        "products of 16-bit operands run in fp32, without Tensor Cores, because cuDNN or cuBLAS "
        "has no plan for them: " +
        FirstNames(layers, kMostLayers) + "; --verbose tells what was asked for");
  if (!not_recorded_.empty())
    warnings.push_back(
        "steps, or parts of them, are launched kernel by kernel, which is slower: the device "
        "cannot record them: " +
        not_recorded_);
  return warnings;
}

}  // namespace ada::backend::cuda
