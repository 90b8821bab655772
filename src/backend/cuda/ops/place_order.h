// The places of a batch by token (kernels/sort_places.h).
#pragma once
#include <cstdint>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/sort_places.h"

namespace ada::backend::cuda {

// Belongs to an embedding op, whose dw adds the places of a token in their order. A radix sort by
// the token, which keeps the order of equal ones; two buffers are read and written in turns.
class PlaceOrder {
 public:
  // most: places of a batch.
  PlaceOrder(const Context& context, std::int64_t most, std::int64_t vocabulary);
  // Launches the sorting of `count` tokens.
  void Sort(const std::int32_t* tokens, std::int64_t count);
  // After Sort: the places of token t are places()[first()[t]] .. places()[first()[t + 1]].
  const std::int32_t* first() const { return first_; }
  const std::int32_t* places() const { return sorted_[turns_ % 2].places; }

 private:
  Stream& stream_;
  std::int64_t vocabulary_;
  // As many as a token below the vocabulary's size has digits of SortTurn::kBits bits.
  int turns_ = 1;
  SortedPlaces sorted_[2];
  std::uint32_t* numbers_;
  std::int32_t* first_;
};

}  // namespace ada::backend::cuda
