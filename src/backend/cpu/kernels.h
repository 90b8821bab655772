// The vectorized kernels of the CPU backend as a table of functions, one table per instruction set.
// Every kernel works on one reduction block (whole images of an NHWC tensor) in one thread; partial
// results go to a BlockStats that rounding/rounding_stats.h combines in block order. All sets
// compute with 16 lanes in the same order, so they agree bit for bit.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "backend/formulas.h"
#include "backend/stats_rules.h"
#include "backend/update.h"
#include "number/tensor.h"

namespace ada::backend::cpu {

struct UpdateArgs;  // update_args.h

// A part of a tensor: `data` points at the block's first value.
struct TensorSpan {
  void* data = nullptr;
  Storage storage = Storage::kF32;
};

// What one block's rounding counted. Sums are over values before rounding, `rounded_*` after it.
struct BlockStats {
  std::uint32_t max_bits = 0;           // of |x| before rounding, without Rounding::scale
  std::uint32_t min_bits = 0xffffffff;  // smallest non-zero |x|, minus 1
  std::int64_t values = 0, zeros = 0, zeros_after = 0, underflow = 0, below_min = 0;
  std::int64_t subnormal = 0, overflow = 0, inf = 0, nan = 0, above_edge = 0;
  double sum = 0, sum_square = 0, l1 = 0;
  double rounded_sum = 0, rounded_square = 0;
  float rounded_min = 0, rounded_max = 0;
  std::uint32_t rounded_min_bits = 0xffffffff;  // smallest non-zero |x| after rounding, minus 1
};

// Counts of one block's values by exponent, relative to the rounding's bins_mantissa. inf, NaN and
// zeros are counted separately.
struct BlockBins : BinRange {
  std::uint32_t counts[kExponents] = {};
  std::uint32_t zeros = 0, inf = 0, nan = 0;
};

// How a kernel rounds and what it measures while doing so.
struct Rounding {
  NumberFormat format;
  bool count = false;           // every field of BlockStats
  bool moments = false;         // the rounded_* fields
  BlockStats* stats = nullptr;  // null: nothing is measured (the values are exact)
  double edge = INFINITY;       // above_edge counts |rounded x| > edge * largest value
  // Values are multiplied by `scale` before and divided by it after rounding. What rounding does is
  // counted of the scaled values, one that leaves fp32 as an overflow; zeros, inf, NaN, extremes
  // and sums are of the values without it, rounded_* of what is stored. Not 1: storage is fp32.
  float scale = 1;
  // Where `count` is set and this is not null: filled, of the values before `scale`.
  BlockBins* bins = nullptr;
  std::uint32_t bins_mantissa = 0;  // of the scale that values carry
  // Stochastic rounding: value i of the block takes random word first + i of (key, draw).
  bool stochastic = false;
  std::uint64_t key = 0, draw = 0, first = 0;
  // With `moments`: of these only rounded_square and the larger of |rounded_min| and |rounded_max|.
  bool size_only = false;
};

// Magnitudes of fp32 values by exponent (scaling::ExponentTail), summed up over calls.
struct TailCounts {
  std::int64_t bins[256] = {};
  std::int64_t nonzero = 0;
  std::uint32_t max_bits = 0;
};

struct BatchNormForwardArgs {
  TensorSpan x, addend, out;
  std::int64_t pixels = 0, channels = 0;
  const float *mean = nullptr, *factor = nullptr,
              *beta = nullptr;  // factor = gamma / sqrt(var + eps)
  bool relu = false;
  Rounding y, sum;
};
struct BatchNormSumsArgs {
  TensorSpan x, dy,
      out;  // out.data null: no relu; else dy is masked in place where out is not positive
  std::int64_t pixels = 0, channels = 0;
  const float *mean = nullptr, *inverse = nullptr;  // inverse = 1 / sqrt(var + eps)
  float *sum_dy = nullptr, *sum_dy_xhat = nullptr;  // [channels], written
};
struct BatchNormBackwardArgs {
  TensorSpan x, dy, dx;
  std::int64_t pixels = 0, channels = 0;
  const float *mean = nullptr, *factor = nullptr;    // factor = gamma / sqrt(var + eps)
  const float *mean_dy = nullptr, *slope = nullptr;  // slope = mean(dy * xhat) / sqrt(var + eps)
  Rounding dx_rounding;
};
struct PoolArgs {
  TensorSpan x, y;  // of `images` images; gradients in backward: y is dy, x is dx
  std::int64_t images = 0, h = 0, w = 0, c = 0, out_h = 0, out_w = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  // Average pooling: whether padding counts as zeros; windows as AvgPoolSpec::adaptive says.
  bool count_padding = true, adaptive = false;
  std::uint16_t* index = nullptr;  // max pooling: position in the window, [images, out_h, out_w, c]
  float* work = nullptr;           // backward: one image of x in fp32
  Rounding rounding;
};

// Groups (formulas.h) of one image in fp32: group g is `runs` runs of `run` values, `step` values
// apart, and its first run begins at g * run. With by_length (L2NormalizeSpec) `mean` holds the
// norm.
struct GroupedNormArgs {
  const float *x = nullptr, *dy = nullptr;
  std::int64_t groups = 0, runs = 1, run = 0, step = 0;
  std::int64_t affine_step = 0;  // parameters of group g begin at g * affine_step
  const float *gamma = nullptr, *beta = nullptr;
  double eps = 0;
  bool by_length = false;
  float *mean = nullptr, *inverse = nullptr;  // by group; written forwards
  float* out = nullptr;                       // y or dx, as x lies; may be x or dy
};

// Softmax of rows of scores in fp32 (loss_formulas.h). A row whose label is negative is skipped.
struct SoftmaxArgs {
  const float* z = nullptr;  // [rows, classes]
  std::int64_t rows = 0, classes = 0;
  const std::int32_t* labels = nullptr;  // [rows]
  float* work = nullptr;                 // 16 * classes values
  double* log_sums = nullptr;            // [rows]; written by softmax_sums
  std::int32_t* better = nullptr;   // [rows]; written by softmax_sums: classes before the label
  const double* factors = nullptr;  // softmax_gradient: by label
  float* gradient = nullptr;        // the same: as z lies; may be z
};

// Local response normalization of `pixels` pixels in fp32 (LrnSpec).
struct LrnArgs {
  const float *x = nullptr, *dy = nullptr;
  std::int64_t pixels = 0, channels = 0;
  int size = 1;
  LrnFactors factors{};
  double* work = nullptr;  // 64 * channels values
  float* out = nullptr;    // y or dx; may be x or dy
};

// Unpooling: `small` is pooled as `positions` [images, pooled_h, pooled_w, c] say, `large` is not.
struct UnpoolArgs {
  TensorSpan small, large;
  std::int64_t images = 0, c = 0, small_h = 0, small_w = 0, pooled_h = 0, pooled_w = 0;
  std::int64_t large_h = 0, large_w = 0;
  int kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, pad_h = 0, pad_w = 0;
  const std::uint16_t* positions = nullptr;
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "sse2", "generic"

  // out = in, widened to fp32.
  void (*widen)(TensorSpan in, float* out, std::int64_t n);
  // out = round(in * factor).
  void (*round)(const float* in, float factor, TensorSpan out, std::int64_t n, const Rounding&);
  // Measures what `round` would of values that are stored already (they equal their rounding).
  void (*inspect)(TensorSpan in, std::int64_t n, const Rounding&);
  // Adds x to `counts`: bins of non-zero values whose exponent field is below `limit`, nonzero and
  // max_bits of all.
  void (*exponent_tail)(const float* x, std::int64_t n, TailCounts& counts);
  // Per channel: smallest non-zero magnitude minus 1 and largest magnitude, as bits; merged into
  // what min_bits (start: 0xffffffff) and max_bits (start: 0) hold.
  void (*channel_magnitudes)(TensorSpan in, std::int64_t pixels, std::int64_t channels,
                             std::uint32_t* min_bits, std::uint32_t* max_bits);
  // Per channel: mean and sum of squared deviations over the block's pixels.
  void (*channel_moments)(TensorSpan in, std::int64_t pixels, std::int64_t channels, float* mean,
                          float* m2);

  void (*batch_norm_forward)(const BatchNormForwardArgs&);
  void (*batch_norm_sums)(const BatchNormSumsArgs&);
  void (*batch_norm_backward)(const BatchNormBackwardArgs&);

  // y = max(x, 0); NaN stays.
  void (*relu)(TensorSpan x, TensorSpan y, std::int64_t n);
  // dx = y > 0 ? dy : 0. Moments only (exact).
  void (*relu_backward)(TensorSpan dy, TensorSpan y, TensorSpan dx, std::int64_t n,
                        const Rounding&);
  // out = round(((in[0] * factor[0]) + in[1] * factor[1]) + ...); factors null: all 1.
  void (*sum)(const TensorSpan* in, const float* factors, int count, TensorSpan out, std::int64_t n,
              const Rounding&);
  // out = table[code] of each code of 16 bits.
  void (*look_up)(const std::uint16_t* codes, const float* table, float* out, std::int64_t n);
  // On values in fp32. out = a * b; out may be one of them.
  void (*multiply)(const float* a, const float* b, float* out, std::int64_t n);
  // out = x * factors by channel; out may be x.
  void (*multiply_channels)(const float* x, const float* factors, std::int64_t pixels,
                            std::int64_t channels, float* out);
  // sums[c] = the sum over the pixels of a * b (b null: of a), from the first to the last.
  void (*strip_sums)(const float* a, const float* b, std::int64_t pixels, std::int64_t channels,
                     float* sums);
  // out = normalized x; mean and inverse of each group.
  void (*grouped_norm)(const GroupedNormArgs&);
  // out = dx; hat: xhat, as x lies.
  void (*grouped_norm_backward)(const GroupedNormArgs&, float* hat);

  void (*lrn)(const LrnArgs&);
  void (*lrn_backward)(const LrnArgs&);
  void (*softmax_sums)(const SoftmaxArgs&);
  void (*softmax_gradient)(const SoftmaxArgs&);

  void (*max_unpool)(const UnpoolArgs&);           // large = small at its positions, else 0
  void (*max_unpool_backward)(const UnpoolArgs&);  // small = large at its positions
  void (*max_pool)(const PoolArgs&);
  void (*max_pool_backward)(const PoolArgs&);
  void (*avg_pool)(const PoolArgs&);
  void (*avg_pool_backward)(const PoolArgs&);

  // accumulator[i] += x[i]
  void (*accumulate)(const float* x, float* accumulator, std::int64_t n);
  // out[i] = x[i] / scale, added to out[i] if `add`.
  void (*unscale)(const float* x, float scale, bool add, float* out, std::int64_t n);
  double (*sum_squares)(const float* x, std::int64_t n);
  std::uint32_t (*largest)(const float* x, std::int64_t n);  // bits of max |x|; a NaN is largest
  std::uint32_t (*largest_stored)(TensorSpan x,
                                  std::int64_t n);  // the same of any storage, as fp32
  // Bits of the smallest magnitude that is not zero, less 1; 0xffffffff where all are zero.
  std::uint32_t (*smallest_stored)(TensorSpan x, std::int64_t n);
  // NaN -> 0, |x| > limit -> limit with the sign of x.
  void (*sanitize)(float* x, std::int64_t n, float limit);
  void (*update)(const UpdateArgs&);
  // The next three serve updates that look at a parameter as a whole (ops/matrix_updates.h).
  // y = factor * x + share * y: the product with x and the sum are rounded once, share * y before.
  // x is fp32 or bf16.
  void (*combine)(float factor, TensorSpan x, float share, float* y, std::int64_t n);
  // sums[c] += the squares of x[., c], row by row; rows lie `step` apart.
  void (*column_squares)(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t step,
                         double* sums);
  // change = gradient / sqrt(max(row * columns, least)).
  void (*divide_by_roots)(const float* gradient, float row, const float* columns, float least,
                          float* change, std::int64_t n);
};

// The tables of all instruction sets, whether or not this processor has them; `generic` is that of
// processors other than x86-64, which have no other.
namespace generic {
extern const Kernels kTable;
}
namespace sse2 {
extern const Kernels kTable;
}
namespace avx2 {
extern const Kernels kTable;
}
namespace avx512 {
extern const Kernels kTable;
}

// Those that this processor has, the best first.
std::vector<const Kernels*> KernelsHere();
// The first of them, or the one that the environment variable ADA_ISA names (processor.h;
// DeviceError where it is not there). avx512bf16 and amx are avx512 here; their products differ
// (matmul_kernels.h).
const Kernels& SelectKernels();

}  // namespace ada::backend::cpu
