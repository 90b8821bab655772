// Declarations of the kernels of one instruction set (namespace ADA_ISA); kernels.h says what they
// do.
#pragma once
#include "backend/cpu/kernels.h"

namespace ada::backend::cpu::ADA_ISA {

// The order is that of Kernels; table.cpp makes the table of them.
void Widen(TensorSpan in, float* out, std::int64_t n);
void Round(const float* in, float factor, TensorSpan out, std::int64_t n, const Rounding&);
void Inspect(TensorSpan in, std::int64_t n, const Rounding&);
void ExponentTail(const float* x, std::int64_t n, TailCounts& counts);
void ChannelMagnitudes(TensorSpan in, std::int64_t pixels, std::int64_t channels,
                       std::uint32_t* min_bits, std::uint32_t* max_bits);
void Relu(TensorSpan x, TensorSpan y, std::int64_t n);
void ReluBackward(TensorSpan dy, TensorSpan y, TensorSpan dx, std::int64_t n, const Rounding&);
void Sum(const TensorSpan* in, const float* factors, int count, TensorSpan out, std::int64_t n,
         const Rounding&);
// out = the numbers in [0, 1) of random words first .. first + n of (key, draw).
void Uniform(std::uint64_t key, std::uint64_t draw, std::int64_t first, std::int64_t n, float* out);
void ChannelMoments(TensorSpan in, std::int64_t pixels, std::int64_t channels, float* mean,
                    float* m2);
void BatchNormForward(const BatchNormForwardArgs&);
void BatchNormSums(const BatchNormSumsArgs&);
void BatchNormBackward(const BatchNormBackwardArgs&);
void LookUp(const std::uint16_t* codes, const float* table, float* out, std::int64_t n);
void Multiply(const float* a, const float* b, float* out, std::int64_t n);
void MultiplyChannels(const float* x, const float* factors, std::int64_t pixels,
                      std::int64_t channels, float* out);
void StripSums(const float* a, const float* b, std::int64_t pixels, std::int64_t channels,
               float* sums);
void GroupedNorm(const GroupedNormArgs&);
void GroupedNormBackward(const GroupedNormArgs&, float* hat);
void Lrn(const LrnArgs&);
void LrnBackward(const LrnArgs&);
void SoftmaxSums(const SoftmaxArgs&);
void SoftmaxGradient(const SoftmaxArgs&);
void MaxUnpool(const UnpoolArgs&);
void MaxUnpoolBackward(const UnpoolArgs&);
void MaxPool(const PoolArgs&);
void MaxPoolBackward(const PoolArgs&);
void AvgPool(const PoolArgs&);
void AvgPoolBackward(const PoolArgs&);
void Accumulate(const float* x, float* accumulator, std::int64_t n);
void Unscale(const float* x, float scale, bool add, float* out, std::int64_t n);
double SumSquares(const float* x, std::int64_t n);
std::uint32_t Largest(const float* x, std::int64_t n);
std::uint32_t LargestStored(TensorSpan x, std::int64_t n);
std::uint32_t SmallestStored(TensorSpan x, std::int64_t n);
void Sanitize(float* x, std::int64_t n, float limit);
void Update(const UpdateArgs&);
void Combine(float factor, TensorSpan x, float share, float* y, std::int64_t n);
void ColumnSquares(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t step,
                   double* sums);
void DivideByRoots(const float* gradient, float row, const float* columns, float least,
                   float* change, std::int64_t n);

}  // namespace ada::backend::cpu::ADA_ISA
