// Declarations of the kernels of one instruction set (namespace ADA_ISA); kernels.h says what they
// do.
#pragma once
#include "backend/cpu/kernels.h"

namespace ada::backend::cpu::ADA_ISA {

void Widen(Piece in, float* out, std::int64_t n);
void Round(const float* in, float factor, Piece out, std::int64_t n, const Rounding&);
void Inspect(Piece in, std::int64_t n, const Rounding&);
void ExponentTail(const float* x, std::int64_t n, int limit, TailCounts& counts);
void ChannelMagnitudes(Piece in, std::int64_t pixels, std::int64_t channels,
                       std::uint32_t* min_bits, std::uint32_t* max_bits);
void Relu(Piece x, Piece y, std::int64_t n);
void ReluBackward(Piece dy, Piece y, Piece dx, std::int64_t n, const Rounding&);
void Sum(const Piece* in, const float* factors, int count, Piece out, std::int64_t n,
         const Rounding&);
void Dropout(Piece in, Piece out, std::int64_t first, std::int64_t n, float rate, std::uint64_t key,
             std::uint64_t draw, const Rounding&);
void ChannelMoments(Piece in, std::int64_t pixels, std::int64_t channels, float* mean, float* m2);
void BatchNormForward(const BatchNormForwardArgs&);
void BatchNormSums(const BatchNormSumsArgs&);
void BatchNormBackward(const BatchNormBackwardArgs&);
void MaxPool(const PoolArgs&);
void MaxPoolBackward(const PoolArgs&);
void AvgPool(const PoolArgs&);
void AvgPoolBackward(const PoolArgs&);
void Accumulate(const float* x, float* accumulator, std::int64_t n);
void Unscale(const float* x, float scale, bool add, float* out, std::int64_t n);
double SumSquares(const float* x, std::int64_t n);
std::uint32_t Largest(const float* x, std::int64_t n);
std::uint32_t LargestStored(Piece x, std::int64_t n);
void Sanitize(float* x, std::int64_t n, float limit);
void Update(const UpdateRule&, const UpdateStep&, const UpdateSlot&, std::int64_t first,
            std::int64_t n);

}  // namespace ada::backend::cpu::ADA_ISA
