// Scratch memory; see context.h.
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

Scratch::~Scratch() {
  for (std::byte* block : blocks_) stream_.Free(block);
}

std::byte* Scratch::data() {
  if (blocks_.empty() || size_ < wanted_) {
    blocks_.reserve(blocks_.size() + 1);
    blocks_.push_back(stream_.Allocate(wanted_));
    size_ = wanted_;
  }
  return blocks_.back();
}

}  // namespace ada::backend::cuda
