// The memory of two backends side by side: whatever one allocates the other does too. Places are
// named by the first's addresses, which are what the graph sees.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "backend/backend.h"

namespace ada::backend::compare {

class AddressMap {
 public:
  AddressMap(Backend& first, Backend& second) : sides_{&first, &second} {}
  AddressMap(const AddressMap&) = delete;

  Backend& first() const { return *sides_[0]; }
  Backend& second() const { return *sides_[1]; }

  std::byte* Allocate(std::size_t bytes);
  SharedMemory AllocateShared(std::size_t bytes);
  void Upload(std::byte* to, const void* from, std::size_t bytes);
  void Send(const SharedMemory& memory);

  // Copies the host's bytes, which are not sent yet, to the second's host memory: an op that is
  // being made may look at them.
  template <class T>
  void ShowOnHost(const T* place) {
    if (place != nullptr) ShowOnHost(reinterpret_cast<const std::byte*>(place), sizeof *place);
  }
  void ShowOnHost(const std::byte* place, std::size_t bytes);

  // The second's place of the first's; null stays null.
  std::byte* Second(const std::byte* first) const;
  template <class T>
  T* Second(T* first) const {
    return reinterpret_cast<T*>(Second(reinterpret_cast<const std::byte*>(first)));
  }
  // The same spec, tensor or slot at the second's addresses.
  template <class Part>
  Part ForSecond(Part part) const {
    ForEachPointer(part, [&](auto*& pointer) { pointer = Second(pointer); });
    return part;
  }

  // What lies at a place on a side (0, 1) when all work is done.
  void Read(int side, const std::byte* place, void* to, std::size_t bytes) const;
  template <class T>
  T Read(int side, const T* place) const {
    T value{};
    Read(side, reinterpret_cast<const std::byte*>(place), &value, sizeof value);
    return value;
  }
  // The first `rows` images as fp32.
  std::vector<float> Values(int side, const Tensor& tensor, std::int64_t rows) const;
  // The second's bytes become the first's.
  void Copy(const std::byte* place, std::size_t bytes);
  template <class T>
  void Copy(const T* place) {
    Copy(reinterpret_cast<const std::byte*>(place), sizeof *place);
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    std::byte *memory[2] = {}, *host[2] = {};  // host: null where it is not shared
  };
  const Block& BlockOf(const std::byte* first) const;

  Backend* sides_[2];
  std::map<const std::byte*, Block> blocks_;  // by the first's address
};

}  // namespace ada::backend::compare
