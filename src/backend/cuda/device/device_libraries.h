// NVIDIA's libraries are not linked but loaded when they are first called (device_functions.cpp):
// the program starts, and trains on the CPU, where they are missing.
#pragma once
#include <cstddef>
#include <mutex>
#include <string>

namespace ada::backend::cuda {

class Library {
 public:
  // folder: where it is looked for behind the loader's own folders; may be empty.
  Library(const char* product, const char* name, const char* folder);
  // What is wrong and what to do; "" where it can be loaded.
  std::string WhyMissing() const;
  // Null where the library or its function is missing; Get throws DeviceError then.
  void* Find(const char* function) const;
  void* Get(const char* function) const;

 private:
  void Load() const;
  std::string product_, name_, folder_;
  mutable std::once_flag loaded_;
  mutable void* handle_ = nullptr;
  mutable std::string missing_;
};

const Library& Cudnn();
const Library& Cublas();
const Library& Nvrtc();

// 91300 of cuDNN 9.13.0; 0 where none is found.
std::size_t LoadedCudnnVersion();
// Of what products need; "" where nothing is missing.
std::string WhichLibraryIsMissing();
// For device `index`: the driver, the GPU and its age. "" where all are there.
std::string WhatIsMissing(int index);

}  // namespace ada::backend::cuda
