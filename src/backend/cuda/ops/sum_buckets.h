// How tensors that are summed over processes are cut: into buckets, which travel as a whole, of
// equal slices, one for each process to sum; and tensors and slices into segments, a block of
// threads each.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/cuda/kernels/gradient_sums.h"
#include "number/tensor.h"

namespace ada::backend::cuda {

// Made once for a list of tensors, which are seen as one sequence of values, in the order of the
// list. All processes cut alike, but for `slices`, which are those of this one.
struct SumBuckets {
  struct Bucket {
    std::int64_t end = 0;    // of all values, how many are there when it is full
    std::int64_t slice = 0;  // values; the last bucket is padded
    std::size_t first_segment = 0, segments = 0;
    std::size_t first_of_slice = 0, of_slice = 0;  // of this process's slice
  };
  std::vector<Bucket> buckets;
  std::vector<std::int64_t> ends;             // by tensor: values of it and of those before
  std::vector<SumSegment> segments;           // of the tensors, bucket by bucket
  std::vector<SumSegment> slices;             // of this process's slices
  std::vector<int> tensor_of, tensor_of_sum;  // by segment of the one and of the other

  std::int64_t values() const { return ends.empty() ? 0 : ends.back(); }
  std::int64_t largest_slice() const { return buckets.empty() ? 0 : buckets.front().slice; }
};

// bucket_bytes: of fp32 values, at most; a quarter of all where that is less.
SumBuckets CutForSums(const std::vector<Tensor>& tensors, std::int64_t bucket_bytes, int ranks,
                      int rank);

}  // namespace ada::backend::cuda
