// The low-precision copies of one weight tensor: rounded once, then kept in every layout that the
// products of its layer want. Read by all workers, changed only by Refresh and Add. Their memory is
// not touched before the first Refresh.
#pragma once
#include <memory>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/rounding_stats.h"
#include "backend/cpu/products/product.h"

namespace ada::backend::cpu {

class WeightCopies {
 public:
  // Of spec.w, in spec.w_format. moments: the rounded copy's are taken on every Refresh.
  WeightCopies(const Context& context, const ProductGeometry& geometry, const ProductSpec& spec,
               bool moments);
  ~WeightCopies();
  WeightCopies(const WeightCopies&) = delete;
  // The copy in `layout`, made if it is new; without values before the first Refresh. Not while
  // workers read.
  const float* Add(const std::shared_ptr<const WeightLayout>& layout);
  void Refresh(const Pass& pass);
  const TensorMoments& moments() const { return moments_; }
  // The rounded weights in PyTorch's order.
  const float* plain() const;

 private:
  using Floats = std::vector<float, PageAllocator<float, PageKind::kHuge>>;
  struct Copy {
    std::shared_ptr<const WeightLayout> layout;
    Floats values;
  };

  Context context_;
  ProductGeometry geometry_;
  Tensor master_;
  TensorMoments moments_;
  RoundingStats stats_;
  Floats rounded_;  // PyTorch's order; empty where nothing is rounded
  std::vector<Copy> copies_;
  bool refreshed_ = false;
  std::ptrdiff_t bytes_ = 0;
};

}  // namespace ada::backend::cpu
