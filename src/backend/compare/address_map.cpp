// See address_map.h.
#include "backend/compare/address_map.h"

#include <cstring>

#include "core/error.h"

namespace ada::backend::compare {

std::byte* AddressMap::Allocate(std::size_t bytes) {
  Block block{bytes, {sides_[0]->Allocate(bytes), sides_[1]->Allocate(bytes)}, {}};
  blocks_[block.memory[0]] = block;
  return block.memory[0];
}

SharedMemory AddressMap::AllocateShared(std::size_t bytes) {
  const SharedMemory first = sides_[0]->AllocateShared(bytes),
                     second = sides_[1]->AllocateShared(bytes);
  blocks_[first.backend] = {bytes, {first.backend, second.backend}, {first.host, second.host}};
  return first;
}

const AddressMap::Block& AddressMap::BlockOf(const std::byte* first) const {
  auto after = blocks_.upper_bound(first);
  ADA_CHECK(after != blocks_.begin());
  const Block& block = (--after)->second;
  ADA_CHECK(first < block.memory[0] + block.bytes);
  return block;
}

std::byte* AddressMap::Second(const std::byte* first) const {
  if (first == nullptr) return nullptr;
  const Block& block = BlockOf(first);
  return block.memory[1] + (first - block.memory[0]);
}

void AddressMap::Upload(std::byte* to, const void* from, std::size_t bytes) {
  sides_[0]->Upload(to, from, bytes);
  sides_[1]->Upload(Second(to), from, bytes);
}

void AddressMap::Send(const SharedMemory& memory) {
  const Block& block = BlockOf(memory.backend);
  const auto offset = memory.backend - block.memory[0];
  std::memmove(block.host[1] + offset, memory.host, memory.bytes);
  sides_[0]->Send(memory);
  sides_[1]->Send({block.memory[1] + offset, block.host[1] + offset, memory.bytes});
}

void AddressMap::ShowOnHost(const std::byte* place, std::size_t bytes) {
  const Block& block = BlockOf(place);
  const auto offset = place - block.memory[0];
  std::memcpy(block.host[1] + offset, block.host[0] + offset, bytes);
}

void AddressMap::Read(int side, const std::byte* place, void* to, std::size_t bytes) const {
  const Block& block = BlockOf(place);
  const auto offset = place - block.memory[0];
  Backend& backend = *sides_[side];
  if (block.host[side] == nullptr) {
    backend.Synchronize();
    backend.Download(to, block.memory[side] + offset, bytes);
  } else {
    backend.Fetch({block.memory[side] + offset, block.host[side] + offset, bytes});
    backend.Synchronize();
    std::memcpy(to, block.host[side] + offset, bytes);
  }
}

std::vector<float> AddressMap::Values(int side, const Tensor& tensor, std::int64_t rows) const {
  std::vector<float> values(static_cast<std::size_t>(rows * tensor.shape.per_image()));
  if (values.empty()) return values;
  sides_[side]->Synchronize();
  sides_[side]->Read(side == 0 ? tensor : ForSecond(tensor), rows, values.data());
  return values;
}

void AddressMap::Copy(const std::byte* place, std::size_t bytes) {
  if (bytes == 0) return;
  std::vector<std::byte> from(bytes);
  Read(0, place, from.data(), bytes);
  const Block& block = BlockOf(place);
  const auto offset = place - block.memory[0];
  sides_[1]->Synchronize();
  if (block.host[1] == nullptr) {
    sides_[1]->Upload(block.memory[1] + offset, from.data(), bytes);
  } else {
    std::memcpy(block.host[1] + offset, from.data(), bytes);
    sides_[1]->Send({block.memory[1] + offset, block.host[1] + offset, bytes});
  }
}

}  // namespace ada::backend::compare
