// See attention_memory.h.
#include "backend/cuda/ops/attention_memory.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace ada::backend::cuda {
namespace {

// What a tensor's values are known to be: in fp32 storage they may have a per-tensor scale.
NumberFormat ReadableFormat(const Tensor& tensor) {
  return tensor.storage == Storage::kF32 ? kFp32 : tensor.format;
}
// The format in which probabilities or gradients of scores are multiplied; a per-tensor scale, or
// no rounding, leaves values of which only fp32 holds all.
NumberFormat RoundedFormat(bool rounds, const NumberFormat& format, const RoundingStyle& style) {
  return rounds && style.per_tensor_scale == nullptr ? format : kFp32;
}

// Takes places from `scratch`, one after the other; null: only adds up their bytes.
class Taking {
 public:
  explicit Taking(std::byte* scratch) : begin_(scratch) {}
  std::byte* Take(std::int64_t count, std::size_t each) {
    std::byte* const place = begin_ == nullptr ? nullptr : begin_ + bytes_;
    bytes_ += Aligned(static_cast<std::size_t>(count) * each);
    return place;
  }
  template <class T>
  T* Take(std::int64_t count) {
    return reinterpret_cast<T*>(Take(count, sizeof(T)));
  }
  TensorSpan Take(std::int64_t count, Storage storage) {
    return {Take(count, BytesOf(storage)), storage};
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* begin_;
  std::size_t bytes_ = 0;
};

}  // namespace

// Tensor Cores multiply two operands of one 16-bit storage: one operand that does not fit in it,
// and all products of the pass are computed in fp32.
Storage CommonOperands(const AttentionSpec& spec, bool backward) {
  std::vector<NumberFormat> formats;
  for (const Tensor& x : spec.x) formats.push_back(ReadableFormat(x));
  formats.push_back(RoundedFormat(spec.rounds_p, spec.p_format, spec.p_style));
  if (backward) {
    formats.push_back(ReadableFormat(spec.dy.tensor));
    formats.push_back(RoundedFormat(spec.rounds_ds, spec.ds_format, spec.ds_style));
  }
  for (const NumberFormat& format : formats)
    if (OperandsOf(formats[0], format) == Storage::kF32) return Storage::kF32;
  return OperandsOf(formats[0], formats[0]);
}

AttentionSizes::AttentionSizes(const AttentionSpec& spec)
    : heads(spec.heads),
      kv_heads(spec.kv_heads),
      width(spec.y.shape.c / spec.heads),
      causal(spec.causal),
      fused(spec.fused()) {
  const auto positions = [](const Tensor& tensor) { return tensor.shape.h * tensor.shape.w; };
  queries = positions(spec.x[0]), keys = positions(spec.x[fused ? 0 : 1]);
  // Kernels count scores with 32 bits. The division keeps the test itself from overflowing.
  const std::int64_t each = heads * queries * keys, images = spec.y.shape.n;
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  if (each > kMost / images)
    throw ConfigError("layer " + spec.layer + ": attention of " + std::to_string(images) +
                      " sequences has " + std::to_string(each) +
                      " scores for each, more than 2^32 in all, which the CUDA backend numbers; "
                      "take a smaller data.batch_size or a larger train.accumulate");
}

AttentionMemory::AttentionMemory(const Context& context, const AttentionSpec& spec,
                                 const AttentionSizes& sizes, const ScoreChunks& chunks,
                                 bool backward)
    : sizes_(sizes),
      images_(spec.y.shape.n),
      chunks_(chunks),
      backward_(backward),
      operands_(CommonOperands(spec, backward)) {
  const std::int64_t rows = sizes.Rows(), keys = sizes.keys, width = sizes.width;
  // Values of a head of keys, in queries, in keys or values, and in scores. A request is the rows,
  // columns and terms of the product, and which operand is transposed.
  const std::int64_t q = rows * width, k = keys * width, s = rows * keys;
  Plan(context, kScores, {rows, keys, width, false, true}, {q, k, s, false, true});
  if (!backward) {
    Plan(context, kY, {rows, width, keys}, {s, k, q, true, false});
  } else {
    Plan(context, kDv, {keys, width, rows, true, false}, {s, q, k, true, false});
    Plan(context, kDp, {rows, keys, width, false, true}, {q, k, s, false, true});
    Plan(context, kDq, {rows, width, keys}, {s, k, q, true, false});
    Plan(context, kDk, {keys, width, rows, true, false}, {s, q, k, true, false});
  }
  bytes_ = LayOut(nullptr).bytes;
}

void AttentionMemory::Plan(const Context& context, AttentionMatmul product,
                           const BatchedRequest& request, Sides sides) {
  BatchedRequest wanted = request;
  wanted.operands = operands_;
  products_[product] = context.matmuls.MakeBatched(wanted);
  ADA_CHECK(products_[product] != nullptr);
  sides_[product] = sides;
}

// Queries, keys and values of the whole batch are packed by head; scores and what has their shape
// are of one chunk, which the next one overwrites.
AttentionMemory::Layout AttentionMemory::LayOut(std::byte* scratch) const {
  Taking take(scratch);
  const std::int64_t of_queries = images_ * sizes_.ValuesOfPart(0);
  const std::int64_t of_keys = images_ * sizes_.ValuesOfPart(1), scores = chunks_.values();
  const std::int64_t rows = chunks_.heads() * sizes_.Rows();
  Places at{};
  at.q = take.Take(of_queries, operands_);
  at.k = take.Take(of_keys, operands_), at.v = take.Take(of_keys, operands_);
  at.scores = take.Take<float>(scores), at.rounded = take.Take(scores, operands_);
  at.sums = take.Take<ScoreSum>(rows);
  if (!backward_) {
    at.y = take.Take<float>(of_queries);
  } else {
    at.dy = take.Take(of_queries, operands_);
    at.dq = take.Take<float>(of_queries);
    at.dk = take.Take<float>(of_keys), at.dv = take.Take<float>(of_keys);
    at.dp = take.Take<float>(scores), at.slopes = take.Take<double>(rows);
  }
  return {at, take.bytes()};
}

// Matrices of consecutive heads follow each other, so that a chunk is one call of a batched
// product.
void AttentionMemory::Multiply(AttentionMatmul product, const ScoreChunk& chunk,
                               const TensorSpan& first, const TensorSpan& second,
                               float* out) const {
  const Sides& sides = sides_[product];
  const auto from = [&](const TensorSpan& span, std::int64_t each) {
    return static_cast<const std::byte*>(span.data) +
           static_cast<std::size_t>(chunk.first * each) * BytesOf(span.storage);
  };
  products_[product]->Run(
      sides.first_is_scores ? first.data : from(first, sides.first), from(second, sides.second),
      sides.out_is_scores ? out : out + chunk.first * sides.out, static_cast<int>(chunk.heads));
}

}  // namespace ada::backend::cuda
