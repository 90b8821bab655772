// The roundings of y and dx: how each block is rounded, and which statistics it leaves.
#pragma once
#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/rounding/rounding_stats.h"
#include "backend/cpu/rounding/rule_inputs.h"

namespace ada::backend::cpu {

// Belongs to one MatmulOp and is shared by its ways of computing chunks. Workers call it at the
// same time for different chunks: blocks of images are whole within a chunk, so that they write to
// different statistics.
class MatmulRounding {
 public:
  MatmulRounding(const Context& context, const MatmulSpec& spec);

  // What the sums of a chunk are multiplied by: the factors of their operands (batch_operands.h).
  void SetFactorOfY(float factor) { y_factor_ = factor; }
  void SetFactorOfDx(float factor) { dx_factor_ = factor; }

  // Rounds and measures a chunk's values, block by block; y: with its channel moments.
  void RoundY(const Chunk& chunk, const float* y);
  void RoundDx(const Chunk& chunk, const float* dx, float alpha);

  // Where a kernel that rounds by storing puts a chunk's results, and times what: the tensor itself
  // where nothing but the largest magnitude is measured of them, else `values`, in fp32.
  struct Destination {
    TensorSpan out;
    float factor;
    bool plain;
    bool by_block;  // whether blocks of `values` may be closed before all others are made
  };
  Destination DestinationOfY(const Chunk& chunk, float* values);
  Destination DestinationOfDx(const Chunk& chunk, float* values, float alpha);
  // After that: rounds and measures what is in `values`, or uses the largest magnitudes (bits, by
  // block) of what is not.
  void CloseY(const Chunk& chunk, const Destination& to, const std::uint32_t* largest);
  void CloseDx(const Chunk& chunk, const Destination& to, float alpha,
               const std::uint32_t* largest);

  void BeginDx();
  void FinishY(const Pass& pass) { y_stats_.Finish(pass); }
  void FinishDx(const Pass& pass);
  float y_factor() const { return y_factor_; }
  float dx_factor() const { return dx_factor_; }
  int block_x() const { return block_x_; }
  int block_y() const { return block_y_; }

 private:
  static bool Plain(RoundingStats& stats, const Tensor& tensor, const Pass& pass);
  static void Measure(RoundingStats& stats, const Shape& shape, int block, const Chunk& chunk,
                      const std::uint32_t* largest);
  void TakeChannelMoments(const Chunk& chunk);

  Context context_;
  MatmulSpec spec_;
  int block_x_, block_y_;
  float y_factor_ = 1, dx_factor_ = 1;
  RoundingStats y_stats_, dx_stats_;
  TailCounter tail_;
};

}  // namespace ada::backend::cpu
