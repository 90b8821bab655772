// The memory of two backends: whatever one allocates, the other does too. Places are named by the
// first one's addresses, which are those that the graph sees.
#pragma once
#include <cstddef>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "error.h"

namespace ada::backend {

class PairedMemory {
 public:
  PairedMemory(Backend& first, Backend& second) : sides_{&first, &second} {}

  std::byte* Allocate(std::size_t bytes) {
    return Keep({sides_[0]->Allocate(bytes), nullptr, bytes}, {sides_[1]->Allocate(bytes)}).backend;
  }
  SharedMemory AllocateShared(std::size_t bytes) {
    return Keep(sides_[0]->AllocateShared(bytes), sides_[1]->AllocateShared(bytes));
  }
  void Upload(std::byte* to, const void* from, std::size_t bytes) {
    sides_[0]->Upload(to, from, bytes), sides_[1]->Upload(Second(to), from, bytes);
  }
  void Send(const SharedMemory& memory) {
    sides_[0]->Send(memory), sides_[1]->Send(ShowOnHost(memory.backend, memory.bytes));
  }
  // Copies the host memory of the first backend to that of the second, because an op being made may
  // read it before it is sent. Returns the second's memory.
  SharedMemory ShowOnHost(const void* place, std::size_t bytes) {
    const auto& [first, second] = BlockOf(place);
    const auto at = static_cast<const std::byte*>(place) - first.backend;
    std::memmove(second.host + at, first.host + at, bytes);
    return {second.backend + at, second.host + at, bytes};
  }
  // The same spec, tensor or slots with the second backend's addresses; null stays null.
  template <class Part>
  Part ForSecond(Part part) const {
    ForEachPointer(part, [&](auto*& pointer) { pointer = Second(pointer); });
    return part;
  }

  // The value at a place of one side (0, 1) after all work is done.
  template <class T>
  T Read(int side, const T* place) const {
    T value{};
    const T* from = side == 0 ? place : Second(place);
    sides_[side]->Synchronize();
    sides_[side]->Download(&value, reinterpret_cast<const std::byte*>(from), sizeof value);
    return value;
  }
  // Images of a tensor as fp32; of none there are none.
  std::vector<float> Values(int side, const Tensor& tensor, std::int64_t images) const {
    if (!tensor) return {};
    std::vector<float> values(static_cast<std::size_t>(images * tensor.shape.per_image()));
    sides_[side]->Synchronize();
    sides_[side]->Read(side == 0 ? tensor : ForSecond(tensor), images, values.data());
    return values;
  }
  // The second's bytes become the first's, if there are any.
  template <class T>
  void Copy(T* place, std::size_t bytes = sizeof(T)) {
    if (place == nullptr) return;
    std::vector<std::byte> from(bytes);
    for (Backend* side : sides_) side->Synchronize();
    sides_[0]->Download(from.data(), reinterpret_cast<const std::byte*>(place), bytes);
    sides_[1]->Upload(reinterpret_cast<std::byte*>(Second(place)), from.data(), bytes);
  }

 private:
  using Block = std::pair<SharedMemory, SharedMemory>;  // host: null where it is not shared
  const SharedMemory& Keep(const SharedMemory& first, const SharedMemory& second) {
    return (blocks_[first.backend] = {first, second}).first;
  }
  const Block& BlockOf(const void* place) const {
    const auto after = blocks_.upper_bound(static_cast<const std::byte*>(place));
    ADA_CHECK(after != blocks_.begin());
    return std::prev(after)->second;
  }
  template <class T>
  T* Second(T* pointer) const {
    if (pointer == nullptr) return nullptr;
    const auto& [first, second] = BlockOf(pointer);
    const auto at = reinterpret_cast<const std::byte*>(pointer) - first.backend;
    ADA_CHECK(static_cast<std::size_t>(at) < first.bytes);
    return reinterpret_cast<T*>(second.backend + at);
  }

  Backend* sides_[2];
  std::map<const std::byte*, Block> blocks_;  // by the first's address
};

}  // namespace ada::backend
