// Where the rows of a head lie in the tensors of an attention (AttentionSpec), and their way to a
// worker's memory and back.
#pragma once
#include <cstdint>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/attention_head.h"

namespace ada::backend::cpu {

// Keeps references. Parts are queries (0), keys (1) and values (2).
class AttentionTensors {
 public:
  AttentionTensors(const Context& context, const AttentionSpec& spec, const AttentionSizes& sizes)
      : kernels_(SequenceKernelsOf(context.kernels)), spec_(spec), sizes_(sizes) {}

  const Tensor& TensorOf(std::size_t part) const { return spec_.x[spec_.fused() ? 0 : part]; }
  // Where the part begins among the channels of its tensor, and how many it has.
  std::int64_t FirstOf(std::size_t part) const {
    if (!spec_.fused() || part == 0) return 0;
    return (sizes_.heads + (part == 2 ? sizes_.kv_heads : 0)) * sizes_.width;
  }
  std::int64_t ChannelsOf(std::size_t part) const {
    return (part == 0 ? sizes_.heads : sizes_.kv_heads) * sizes_.width;
  }
  // `rows` queries of a head, or rows of dy, from number `first` on.
  void LoadQueries(const QueryBlock& first, std::int64_t rows, float* to) const {
    const Tensor& x = spec_.x[0];
    Load(Advance(At(x, first.image), first.first * x.shape.c + first.head * sizes_.width),
         x.shape.c, rows, to);
  }
  void LoadDy(const QueryBlock& first, std::int64_t rows, float* to) const {
    const Tensor& dy = spec_.dy.tensor;
    Load(Advance(At(dy, first.image), first.first * dy.shape.c + first.head * sizes_.width),
         dy.shape.c, rows, to);
  }
  // All keys or values of a head.
  void LoadPart(std::size_t part, std::int64_t image, std::int64_t kv_head, float* to) const {
    const Tensor& tensor = TensorOf(part);
    Load(Advance(At(tensor, image), FirstOf(part) + kv_head * sizes_.width), tensor.shape.c,
         sizes_.keys, to);
  }

  // Puts a block's rows, times `factor`, where they lie in a tensor of all heads: [images,
  // positions, heads * width] in fp32.
  void StoreQueries(const QueryBlock& block, const float* rows, float factor, float* out) const {
    const std::int64_t step = sizes_.heads * sizes_.width;
    out += (block.image * sizes_.queries + block.first) * step + block.head * sizes_.width;
    Store(rows, block.rows, factor, out, step);
  }
  void StoreKeys(std::int64_t image, std::int64_t kv_head, const float* rows, float factor,
                 float* out) const {
    const std::int64_t step = sizes_.kv_heads * sizes_.width;
    out += image * sizes_.keys * step + kv_head * sizes_.width;
    Store(rows, sizes_.keys, factor, out, step);
  }

 private:
  // `count` rows of `width` values, `from_step` values apart, as fp32. Products run over whole
  // steps, so the padding has to be zero and not what an op left there.
  void Load(const TensorSpan& from, std::int64_t from_step, std::int64_t count, float* to) const {
    kernels_.load_rows(from, from_step, count, sizes_.width, to, sizes_.step());
  }
  void Store(const float* rows, std::int64_t count, float factor, float* out,
             std::int64_t step) const {
    kernels_.store_rows(rows, sizes_.step(), count, sizes_.width, factor, out, step);
  }

  const SequenceKernels& kernels_;
  const AttentionSpec& spec_;
  const AttentionSizes& sizes_;
};

}  // namespace ada::backend::cpu
