// The roundings of a product, y and dx: how each block is rounded, and what it leaves behind.
#pragma once
#include "backend/cpu/context.h"
#include "backend/cpu/ops/rounding_stats.h"
#include "backend/cpu/ops/rule_inputs.h"
#include "backend/cpu/products/chunk_product.h"

namespace ada::backend::cpu {

class ProductRounding {
 public:
  ProductRounding(const Context& context, const ProductSpec& spec);

  // Rounds and measures a chunk's values, block by block; y: with its channel moments.
  void RoundY(const Chunk& chunk, const float* y);
  void RoundDx(const Chunk& chunk, const float* dx, float alpha);

  // Whether nothing but the largest magnitude is measured of a chunk's values and storing them
  // rounds them: then another's rounding does, and says of each block what it saw (bits).
  bool PlainY(const Pass& pass) { return Plain(y_stats_, spec_.y, pass); }
  bool PlainDx(const Pass& pass) {
    return !tail_.wanted() && Plain(dx_stats_, spec_.dx.tensor, pass);
  }
  void MeasureY(const Chunk& chunk, const std::uint32_t* largest);
  void MeasureDx(const Chunk& chunk, const std::uint32_t* largest);

  void BeginDx();
  void FinishY(const Pass& pass) { y_stats_.Finish(pass); }
  void FinishDx(const Pass& pass);
  int block_x() const { return block_x_; }
  int block_y() const { return block_y_; }

 private:
  static bool Plain(RoundingStats& stats, const Tensor& tensor, const Pass& pass);
  static void Measure(RoundingStats& stats, const Shape& shape, int block, const Chunk& chunk,
                      const std::uint32_t* largest);
  void TakeChannelMoments(const Chunk& chunk);

  Context context_;
  ProductSpec spec_;
  int block_x_, block_y_;
  RoundingStats y_stats_, dx_stats_;
  TailCounter tail_;
};

}  // namespace ada::backend::cpu
