// Computes chunks in fp32 on oneDNN, whatever the formats: widened on the way in, rounded on the
// way out, while the values are in the cache.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/cpu/matmul/chunk_matmul.h"
#include "backend/cpu/matmul/matmul_rounding.h"
#include "backend/cpu/matmul/pack/weight_copies.h"

namespace ada::backend::cpu {

// Primitives are made for each number of images that a chunk has, one for each worker, since a
// primitive's memory objects are set before each call.
class OnednnChunks final : public ChunkMatmul {
 public:
  // `most`: images of a chunk. `offset`: where its part of a worker's scratch memory begins. Keeps
  // references.
  OnednnChunks(const Context& context, const MatmulSpec& spec, const MatmulGeometry& geometry,
               WeightCopies& weights, MatmulRounding& rounding, int most, std::size_t offset);
  void Prepare(std::int64_t images) override;
  void Refresh() override {}  // the copies are WeightCopies' own
  bool Forward(const Chunk& chunk, const TensorSpan& x) override;
  bool DataGradient(const Chunk& chunk, const TensorSpan& dy, float alpha) override;
  bool WeightGradient(const Chunk& chunk, const TensorSpan& x, const TensorSpan& dy, bool first,
                      float* partial) override;
  std::int64_t partial_values() const override;
  bool Sum(float* partials, std::int64_t count, float* dw, float* db) const override;
  void AddPlain(const float* dw, const float* db, bool first, float* partial) const override;

 private:
  // The matmuls of one chunk size: one a worker, and their weights.
  struct Set {
    std::vector<std::unique_ptr<Matmul>> matmuls;
    const float *forward_weights = nullptr, *data_weights = nullptr;
  };
  struct Buffers {
    float *x, *y, *dx, *dw;
    std::byte* pad;
  };
  void Reserve();
  Buffers BuffersOf(int worker) const;
  Matmul& MatmulFor(const Chunk& chunk);
  const float* AsF32(const TensorSpan& span, std::int64_t values, float* buffer) const;
  std::int64_t layout_values() const;

  Context context_;
  const MatmulSpec& spec_;
  const MatmulGeometry geometry_;
  WeightCopies& weights_;
  MatmulRounding& rounding_;
  const std::int64_t most_;
  const std::size_t offset_;
  std::vector<float> no_bias_;  // zeros, where sums are multiplied before the bias is added
  std::map<std::int64_t, Set> sets_;
  std::shared_ptr<const WeightLayout> gradient_layout_;  // of every set
  std::size_t pad_bytes_ = 0;
};

}  // namespace ada::backend::cpu
