// A few bytes of pinned memory that a kernel writes and the host reads after it has waited for the
// stream: nothing is copied, and nobody waits a second time.
#pragma once
#include <new>
#include <type_traits>

#include "backend/cuda/stream.h"
#include "error.h"

namespace ada::backend::cuda {

// One T in memory of AllocateOnHost, which kernels write.
template <class T>
class Pinned {
 public:
  static_assert(std::is_trivially_copyable_v<T>);
  explicit Pinned(Stream& stream)
      : stream_(stream), value_(new (stream.AllocateOnHost(sizeof(T))) T()) {}
  ~Pinned() {
    try {
      stream_.Synchronize();
    } catch (const DeviceError&) {  // a device that is lost writes no more
    }
    stream_.FreeOnHost(reinterpret_cast<std::byte*>(value_));
  }
  Pinned(const Pinned&) = delete;

  T* get() const { return value_; }               // for kernels
  const T& operator*() const { return *value_; }  // after Synchronize

 private:
  Stream& stream_;
  T* value_;
};

}  // namespace ada::backend::cuda
