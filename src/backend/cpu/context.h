// What every op of the CPU backend works with: threads, kernels and scratch memory.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/communicators.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/thread_pool.h"
#include "io/memory.h"
#include "number/tensor.h"

namespace ada::backend::cpu {

// Memory that ops use within one call: a part for each worker and a part shared by all. Ops reserve
// when they are made; the largest request counts. Pointers are valid from the first call on.
class Scratch {
 public:
  explicit Scratch(int workers) : own_(static_cast<std::size_t>(workers)) {}
  void Reserve(std::size_t bytes_each, std::size_t bytes_shared) {
    each_ = std::max(each_, bytes_each);
    shared_bytes_ = std::max(shared_bytes_, bytes_shared);
  }
  // The same for copies of operands, which the matmuls of one call read.
  void ReserveOperands(std::size_t bytes) { operand_bytes_ = std::max(operand_bytes_, bytes); }
  std::byte* operands() { return Get(operands_, operand_bytes_); }
  std::byte* worker(int index) { return Get(own_[static_cast<std::size_t>(index)], each_); }
  std::byte* shared() { return Get(shared_, shared_bytes_); }
  // 65536 values that `make(where)` makes the first time that somebody asks for them by this name.
  template <class Make>
  const float* Table(const std::string& name, Make&& make) {
    std::vector<float>& table = tables_[name];
    if (!table.empty()) return table.data();
    table.resize(std::size_t{1} << 16);
    CountOwn(static_cast<std::ptrdiff_t>(table.size() * sizeof(float)));
    make(table.data());
    return table.data();
  }
  // What ops hold for themselves (weight copies, partial sums), so that allocated_bytes knows.
  void CountOwn(std::ptrdiff_t bytes) { counted_ += bytes; }
  std::size_t bytes() const {
    return each_ * own_.size() + shared_bytes_ + operand_bytes_ +
           static_cast<std::size_t>(counted_);
  }

 private:
  using Block = std::vector<std::byte, PageAllocator<std::byte, PageKind::kHuge>>;
  // Grows where a later request was larger; what lay in it stays.
  static std::byte* Get(Block& block, std::size_t bytes) {
    if (block.size() < bytes) block.resize(bytes);
    return block.data();
  }
  std::vector<Block> own_;
  std::map<std::string, std::vector<float>> tables_;
  Block shared_, operands_;
  std::size_t each_ = 0, shared_bytes_ = 0, operand_bytes_ = 0;
  std::ptrdiff_t counted_ = 0;
};

// Bytes rounded up to whole lines of the cache, so that what follows is aligned.
inline std::size_t WholeLines(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

struct Context {
  ThreadPool& pool;
  const Kernels& kernels;
  Scratch& scratch;
  Communicators shared = {};
};

// The part of a tensor that begins at image `image`.
inline TensorSpan At(const Tensor& tensor, std::int64_t image) {
  const auto offset = static_cast<std::size_t>(image * tensor.shape.per_image());
  return {tensor.data + offset * BytesOf(tensor.storage), tensor.storage};
}
// The part of `span` that begins `values` values after.
inline TensorSpan Advance(TensorSpan span, std::int64_t values) {
  span.data =
      static_cast<std::byte*>(span.data) + static_cast<std::size_t>(values) * BytesOf(span.storage);
  return span;
}
inline TensorSpan None() { return {}; }

}  // namespace ada::backend::cpu
