// A batch norm that is never stored, in symbols: what its op and its consumer do with the memory
// that they share. mean holds the symbol of y, factor that of raw when y was made; both sums that
// of the masked gradient.
#pragma once
#include "backend/backend.h"
#include "graph/fake_ops.h"

namespace ada::graph::test {

inline Tensor Shared(const backend::RecomputedNorm& norm, float* memory) {
  return {{1, 1, 1, norm.raw.shape.c}, kFp32, Storage::kF32, reinterpret_cast<std::byte*>(memory)};
}

// The batch norm's Forward.
inline void PassToConsumer(const backend::RecomputedNorm& norm, Symbol y) {
  Write(Shared(norm, norm.mean), y);
  Write(Shared(norm, norm.factor), Read(norm.raw));
  REQUIRE(norm.inverse);
  REQUIRE(norm.beta);
}

// The value that the consumer recomputes: raw must still be in memory, unchanged.
inline Symbol MakeZ(const backend::RecomputedNorm& norm) {
  REQUIRE(Read(Shared(norm, norm.factor)) == Read(norm.raw));
  const Symbol y = Read(Shared(norm, norm.mean));
  return norm.relu ? Hash("relu", {y}) : y;
}

// The symbol of a product's x; in its Forward y's rounding is counted.
inline Symbol ReadX(const backend::MatmulSpec& s, bool forward) {
  if (!s.recomputed) return Read(s.x);
  REQUIRE_FALSE(s.x);
  RequireSame(s.x, s.recomputed.z);
  REQUIRE(s.x.shape == s.recomputed.raw.shape);
  const Symbol z = MakeZ(s.recomputed);
  if (forward) Count(s.recomputed.y_stats, s.x, Read(Shared(s.recomputed, s.recomputed.mean)));
  return z;
}

// The end of a consumer's Backward, with dx in memory.
inline void TakeSums(const backend::MatmulSpec& s) {
  const backend::RecomputedNorm& norm = s.recomputed;
  if (!norm) return;
  REQUIRE(s.dx);
  if (norm.relu) Write(s.dx.tensor, Hash("mask", {MakeZ(norm), Read(s.dx.tensor)}));
  Write(Shared(norm, norm.sum_dy), Read(s.dx.tensor));
  Write(Shared(norm, norm.sum_dy_xhat), Read(s.dx.tensor));
}

// The gradient of z as the batch norm's Backward finds it, masked.
inline Symbol ReadMasked(const backend::BatchNormSpec& s) {
  const Symbol dy = Read(s.dy.tensor);
  REQUIRE(Read(Shared(s.recomputed, s.recomputed.sum_dy)) == dy);
  REQUIRE(Read(Shared(s.recomputed, s.recomputed.sum_dy_xhat)) == dy);
  return dy;
}

}  // namespace ada::graph::test
