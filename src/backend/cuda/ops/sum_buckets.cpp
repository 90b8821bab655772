// How CutForSums cuts; see sum_buckets.h. Only whole numbers of the shapes go into it, so that
// processes agree without a message.
#include "backend/cuda/ops/sum_buckets.h"

#include <algorithm>

namespace ada::backend::cuda {
namespace {

constexpr std::int64_t kLine = 64;  // values: slices begin where the device's copies are fastest

std::int64_t RoundedUp(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Adds segments of values begin .. end, which lie `base` further on; by tensor.
void Cut(const std::vector<Tensor>& tensors, const std::vector<std::int64_t>& ends,
         std::int64_t begin, std::int64_t end, std::int64_t base, std::vector<SumSegment>& segments,
         std::vector<int>& tensor_of) {
  auto tensor =
      static_cast<std::size_t>(std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin());
  while (begin < end) {
    const std::int64_t first = tensor == 0 ? 0 : ends[tensor - 1];
    const std::int64_t until = std::min({end, ends[tensor], begin + SumSegment::kValues});
    segments.push_back({tensors[tensor].f32() + (begin - first), begin - base,
                        static_cast<std::int32_t>(until - begin)});
    tensor_of.push_back(static_cast<int>(tensor));
    begin = until;
    while (tensor < ends.size() && begin >= ends[tensor]) ++tensor;
  }
}

}  // namespace

SumBuckets CutForSums(const std::vector<Tensor>& tensors, std::int64_t bucket_bytes, int ranks,
                      int rank) {
  SumBuckets cut;
  std::int64_t total = 0;
  for (const Tensor& tensor : tensors) cut.ends.push_back(total += tensor.shape.numel());
  // A quarter of all at the most, so that sums begin before the backward pass has ended in small
  // networks, too.
  const std::int64_t most = std::min<std::int64_t>(bucket_bytes / 4, (total + 3) / 4);
  const std::int64_t size = RoundedUp(std::max<std::int64_t>(most, 1), kLine * ranks);
  for (std::int64_t begin = 0; begin < total; begin += size) {
    SumBuckets::Bucket bucket;
    bucket.end = std::min(begin + size, total);
    bucket.slice = RoundedUp(bucket.end - begin, kLine * ranks) / ranks;
    bucket.first_segment = cut.segments.size();
    Cut(tensors, cut.ends, begin, bucket.end, begin, cut.segments, cut.tensor_of);
    bucket.segments = cut.segments.size() - bucket.first_segment;
    bucket.first_of_slice = cut.slices.size();
    const std::int64_t mine = begin + rank * bucket.slice;
    Cut(tensors, cut.ends, std::min(mine, bucket.end), std::min(mine + bucket.slice, bucket.end),
        mine, cut.slices, cut.tensor_of_sum);
    bucket.of_slice = cut.slices.size() - bucket.first_of_slice;
    cut.buckets.push_back(bucket);
  }
  // A slice's sums go to a buffer and not to the tensors, of which only the lengths were needed.
  for (SumSegment& segment : cut.slices) segment.values = nullptr;
  return cut;
}

}  // namespace ada::backend::cuda
