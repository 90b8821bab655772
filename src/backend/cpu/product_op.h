// Convolution and linear layers as ops: what surrounds a product. Widening to fp32 and the single
// rounding happen chunk by chunk, while the values are in the cache.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/merge.h"
#include "backend/cpu/observe.h"
#include "backend/cpu/product.h"
#include "backend/cpu/weight_copies.h"

namespace ada::backend::cpu {

class ProductOp final : public Op {
 public:
  ProductOp(const Context& context, const ProductSpec& spec, const ProductGeometry& geometry);
  void Forward(const Pass& pass) override;
  void Backward(const Pass& pass) override;
  void RefreshWeights(const Pass& pass) override { weights_.Refresh(pass); }

 private:
  // The products of one chunk size: one a worker, and their weights.
  struct Set {
    std::vector<std::unique_ptr<Product>> products;
    const float *forward_weights = nullptr, *data_weights = nullptr;
  };
  struct Buffers {
    float *x, *y, *dx, *dw, *db;
    std::byte* pad;
  };
  // A partial weight gradient of one group, in the products' layout.
  struct Partial {
    float *dw, *db;
  };
  Set& SetFor(std::int64_t images);
  Buffers BuffersOf(int worker) const;
  Partial PartialOf(std::int64_t group) const;
  void Reserve();

  void ForwardChunk(const Pass& pass, std::int64_t image, std::int64_t images, int worker);
  void RoundOutput(const Pass& pass, const float* y, std::int64_t image, std::int64_t images);
  void BackwardChunk(const Pass& pass, std::int64_t image, std::int64_t images, int worker,
                     const Partial& partial, bool first, float alpha);
  void DataGradient(const Pass& pass, const float* dy, std::int64_t image, std::int64_t images,
                    int worker, float alpha);
  float DecideAlpha(const Pass& pass);
  void FinishWeightGradient(const Pass& pass, std::int64_t groups);
  void StoreWeightGradient(const Pass& pass, float* gradient);
  void StoreBiasGradient(const Pass& pass, float* gradient);
  const float* AsF32(const Tensor& tensor, std::int64_t image, std::int64_t images,
                     float* buffer) const;

  Context context_;
  ProductSpec spec_;
  ProductGeometry geometry_;
  int chunk_, block_x_, block_y_;
  WeightCopies weights_;
  std::map<std::int64_t, Set> sets_;
  Notes y_notes_, dx_notes_, dw_notes_;
  TailNotes tail_;
  std::shared_ptr<const WeightLayout> gradient_layout_;  // of every set
  std::size_t pad_bytes_ = 0, layout_values_ = 0;
};

}  // namespace ada::backend::cpu
