// A stream of the executor under test, and its memory as tests see it: written and read by copies,
// since on a device it is not the host's.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#ifdef ADA_CUDA_DEVICE
#include "backend/cuda/device/device_stream.h"
#else
#include "cuda/host/host_stream.h"
#endif

namespace ada::backend::test {

inline std::unique_ptr<cuda::Stream> NewStream(const CudaSwitches& switches = {}) {
#ifdef ADA_CUDA_DEVICE
  return std::make_unique<cuda::DeviceStream>(0, switches);
#else
  return std::make_unique<cuda::HostStream>(switches);
#endif
}

// Numbers in memory of a stream, until it ends: freed by whoever holds it.
template <class T>
class Numbers {
 public:
  Numbers(cuda::Stream& stream, std::size_t count)
      : stream_(stream),
        count_(count),
        data_(reinterpret_cast<T*>(stream.AllocateZeroed(count * sizeof(T)))) {}
  ~Numbers() { stream_.Free(reinterpret_cast<std::byte*>(data_)); }
  Numbers(const Numbers&) = delete;

  T* data() const { return data_; }
  void Set(const std::vector<T>& values) const {
    stream_.CopyToDevice(reinterpret_cast<std::byte*>(data_), values.data(),
                         values.size() * sizeof(T));
  }
  // Waits for all work of the stream.
  std::vector<T> Get() const {
    std::vector<T> values(count_);
    stream_.CopyToHost(values.data(), reinterpret_cast<const std::byte*>(data_),
                       count_ * sizeof(T));
    stream_.Synchronize();
    return values;
  }

 private:
  cuda::Stream& stream_;
  std::size_t count_;
  T* data_;
};

// As made, and with each of the switches of a stream's own set otherwise.
inline std::vector<CudaSwitches> StreamSwitches() {
  std::vector<CudaSwitches> all(5);
  all[1].pdl = CudaSwitches::Pdl::kOff;
  all[2].pdl = CudaSwitches::Pdl::kEarly;
  all[3].last_block = false;
  all[4].poison = true;
  return all;
}

}  // namespace ada::backend::test
