// Softmax cross-entropy of many rows of scores: pixels, default boxes. What the losses of both
// share.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/rounding/blocks.h"
#include "io/memory.h"

namespace ada::backend::cpu {

// Rows are cut into chunks of some 64K scores, which workers take. Forward keeps the logarithm of
// each row's sum, so that Gradient computes probabilities without a second sum; both read the
// scores as they are stored.
class SoftmaxRows {
 public:
  // scores: [n, h, w, classes], each pixel a row.
  SoftmaxRows(const Context& context, const Tensor& scores)
      : scores_(scores),
        chunk_(std::clamp<std::int64_t>(65536 / scores.shape.c, 16, 4096)),
        log_sums_(static_cast<std::size_t>(rows_of(scores.shape.n))),
        better_(log_sums_.size()) {
    const auto classes = static_cast<std::size_t>(scores.shape.c);
    // A worker's memory: what the kernels need, then the scores of a chunk or of a block as fp32.
    work_ = 16 * classes * sizeof(float);
    const std::size_t chunk = WholeLines(static_cast<std::size_t>(chunk_) * classes * 4);
    const std::size_t block = BlockValues(scores.shape) * sizeof(float);
    context.scratch.Reserve(WholeLines(work_) + std::max(chunk, block), 0);
    context.scratch.CountOwn(static_cast<std::ptrdiff_t>(log_sums_.size() * 12));
  }
  // Rows of so many images, and the chunks that they are cut into.
  std::int64_t rows_of(std::int64_t images) const {
    return images * scores_.shape.h * scores_.shape.w;
  }
  std::int64_t chunks(std::int64_t images) const { return (rows_of(images) + chunk_ - 1) / chunk_; }

  // For each chunk of the rows of `images` images, its rows one after the other:
  // row(chunk, row, score of its label, log_sum, classes before the label) for those whose label is
  // not negative. Chunks are cut by the shape alone.
  template <class Row>
  void Forward(const Context& context, std::int64_t images, const std::int32_t* labels, Row&& row) {
    context.pool.For(chunks(images), [&](std::int64_t chunk, int worker) {
      const std::int64_t first = chunk * chunk_;
      SoftmaxArgs a = Args(context, worker, first, labels);
      a.rows = std::min(chunk_, rows_of(images) - first);
      float* z = Behind(a);
      context.kernels.widen(Advance(At(scores_, 0), first * a.classes), z, a.rows * a.classes);
      a.z = z;
      context.kernels.softmax_sums(a);
      for (std::int64_t i = 0; i < a.rows; ++i) {
        const std::int32_t label = a.labels[i];
        if (label >= 0)
          row(chunk, first + i, static_cast<double>(z[i * a.classes + label]), a.log_sums[i],
              a.better[i]);
      }
    });
  }
  // The unscaled gradient of a block of images, of a Forward of the same scores: rows by labels,
  // times factors[label].
  float* Gradient(const Context& context, std::int64_t image, std::int64_t n, int worker,
                  const std::int32_t* labels, const double* factors) {
    SoftmaxArgs a = Args(context, worker, rows_of(image), labels);
    a.rows = rows_of(n), a.factors = factors;
    float* z = Behind(a);
    context.kernels.widen(At(scores_, image), z, a.rows * a.classes);
    a.z = a.gradient = z;
    context.kernels.softmax_gradient(a);
    return z;
  }

 private:
  SoftmaxArgs Args(const Context& context, int worker, std::int64_t first,
                   const std::int32_t* labels) {
    SoftmaxArgs a;
    a.classes = scores_.shape.c, a.labels = labels + first;
    a.work = reinterpret_cast<float*>(context.scratch.worker(worker));
    a.log_sums = log_sums_.data() + first, a.better = better_.data() + first;
    return a;
  }
  float* Behind(const SoftmaxArgs& a) const { return a.work + WholeLines(work_) / sizeof(float); }

  Tensor scores_;
  std::int64_t chunk_;  // rows
  std::size_t work_ = 0;
  std::vector<double, PageAllocator<double>> log_sums_;
  std::vector<std::int32_t, PageAllocator<std::int32_t>> better_;
};

}  // namespace ada::backend::cpu
