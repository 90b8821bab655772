// A few bytes that a kernel leaves where the host reads them when the stream has been waited for:
// nothing is copied and nobody waits once more for that.
#pragma once
#include <new>
#include <type_traits>

#include "backend/cuda/stream.h"
#include "core/error.h"

namespace ada::backend::cuda {

// One T in memory of AllocateOnHost, which kernels write.
template <class T>
class SeenByHost {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  explicit SeenByHost(Stream& stream)
      : stream_(stream), value_(new (stream.AllocateOnHost(sizeof(T))) T()) {}
  ~SeenByHost() {
    try {
      stream_.Synchronize();
    } catch (const DeviceError&) {  // a device that is lost writes no more
    }
    stream_.FreeOnHost(reinterpret_cast<std::byte*>(value_));
  }
  SeenByHost(const SeenByHost&) = delete;

  T* get() const { return value_; }               // for kernels
  const T& operator*() const { return *value_; }  // behind Synchronize

 private:
  Stream& stream_;
  T* value_;
};

}  // namespace ada::backend::cuda
