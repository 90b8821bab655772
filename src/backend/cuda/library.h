// NVIDIA's libraries are not linked but loaded when they are first called (device_functions.cpp):
// the program starts, and trains on the CPU, where they are missing.
#pragma once
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

namespace ada::backend::cuda {

// A shared library that is opened at its first use and stays open. Others that ask the loader for
// the same file name then get this one, wherever it was found.
class Library {
 public:
  // folders: where it is looked for after the loader's own folders, in this order.
  Library(std::string product, std::string name, std::vector<std::string> folders);
  // What is wrong and what to do; "" if it can be loaded.
  std::string WhyMissing() const;
  // Null where the library or its function is missing; Get throws DeviceError then.
  void* Find(const char* function) const;
  void* Get(const char* function) const;

 private:
  void Load() const;
  std::string product_, name_;
  std::vector<std::string> folders_;
  mutable std::once_flag loaded_;
  mutable void* handle_ = nullptr;
  mutable std::string missing_;
};

// Where installers put CUDA's libraries. Empty and null: not known.
struct CudaPlaces {
  std::string built_with;                       // the folder of the build's own
  const char* library_path = nullptr;           // LD_LIBRARY_PATH
  const char *home = nullptr, *path = nullptr;  // CUDA_HOME, CUDA_PATH
  std::string major;                            // "13"
};
// Folders in which libraries of CUDA itself (cuBLAS, NVRTC) and NCCL may lie, without duplicates:
// the build's own; the toolkit's (its variables, /usr/local/cuda); and, beside each folder of cuDNN
// that pip has made (.../nvidia/cudnn/lib), those of pip's packages: .../nvidia/cu13/lib,
// .../nvidia/cublas/lib, .../nvidia/cuda_nvrtc/lib, .../nvidia/nccl/lib.
std::vector<std::string> CudaFolders(const CudaPlaces& places);

// --- Those that this backend needs ---

// Each is looked for when it is first used.
const Library& Driver();
const Library& Cudnn();
const Library& Cublas();
// cuDNN compiles its fused plans with it, and answers that it has none where it does not find it.
const Library& Nvrtc();

// For runs of several processes.
const Library& Nccl();

// 91300 for cuDNN 9.13.0; 0 if none is found.
std::size_t LoadedCudnnVersion();
// Names a missing library that matmuls need; "" where nothing is missing. Opens NVRTC before cuDNN
// asks for it.
std::string WhichLibraryIsMissing();
// What is missing for device `index` (driver, GPU, compute capability); "": nothing. Throws
// DeviceError if CUDA cannot tell what the device is.
std::string WhatIsMissing(int index);

}  // namespace ada::backend::cuda
