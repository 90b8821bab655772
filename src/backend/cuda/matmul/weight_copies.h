// The low-precision copy of one weight tensor: rounded once in every refresh, then packed in the
// order and storage in which the products of its layer read it.
#pragma once
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/refresh_weights.h"
#include "backend/cuda/matmul/weight_refresh.h"
#include "backend/cuda/ops/rounding_stats.h"

namespace ada::backend::cuda {

class WeightCopies {
 public:
  // Keeps copies of spec.w in spec.w_format. moments: those of the rounded copy, in backend memory,
  // or null.
  WeightCopies(const Context& context, const MatmulSpec& spec, TensorMoments* moments);

  // In which storage products may read the copy without widening it.
  Storage storage() const { return storage_; }
  void Refresh(const Pass& pass) const { context_.weight_refresh.Refresh(*this, pass); }
  // What a refresh does, but for how it is cut into blocks; and what it measures.
  WeightTensor Describe(const Pass& pass) const;
  StatsLevel Level(const Pass& pass) const { return stats_.Level(pass); }
  // Its own among all of a backend.
  std::int64_t number() const { return number_; }
  // The copy in `storage`. Those that were asked for before Seal are packed in every Refresh, later
  // ones (a refresh may be recorded by then) whenever they are asked for.
  TensorSpan Packed(Storage storage);
  void Seal() { sealed_ = true; }
  // The rounded weights in PyTorch's order, fp32.
  const float* plain() const { return rounded_ != nullptr ? rounded_ : master_.f32(); }

 private:
  struct Copy {
    TensorSpan span;
    bool late;
  };
  void Pack(const Copy& copy) const;

  Context context_;
  std::int64_t number_;
  Tensor master_;
  WeightOrder order_;
  Storage storage_;
  RoundingStats stats_;
  float* rounded_ = nullptr;  // null where nothing is rounded
  std::vector<Copy> copies_;
  bool sealed_ = false;
};

}  // namespace ada::backend::cuda
