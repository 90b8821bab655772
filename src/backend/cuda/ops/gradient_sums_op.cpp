// Sums over processes, bucket by bucket during the backward pass: each process gets its slice of a
// bucket from all, adds the parts in the order of processes, and sends the sum to all.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"
#include "backend/cuda/side_stream.h"
#include "backend/stats_rules.h"
#include "error.h"
#include "number/stats.h"
#include "number/tensor.h"

namespace ada::backend::cuda {
namespace {

// A span of one tensor, and where it lies in its bucket, or slice of one.
// Tables of segments lie in backend memory and stay the same for a whole run.
struct SumSegment {
  static constexpr std::int64_t kValues = 4096;
  float* values;  // null: of a slice
  std::int64_t at;
  std::int32_t count;
};

// What is counted where values are rounded for the way. Sums are in double, in the order of threads
// and then of segments.
// The same counts as on the host (parallel/gradient_sums.cpp), for rows of the tensor `sent`.
struct TransportCounts {
  std::int64_t values, zeros, underflow, below_min, subnormal, overflow, inf, nan;
  double sum, square, l1;
  std::uint32_t max_bits, min_bits;  // of magnitudes; min_bits: of those not 0, minus 1

  ADA_HOST_DEVICE static TransportCounts Start() {
    return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xffffffffu};
  }
  ADA_HOST_DEVICE void Add(const NumberGrid& grid, float before, float after) {
    const std::uint32_t u = MagnitudeBits(before), r = MagnitudeBits(after);
    const double d = before;
    values += 1, zeros += u == 0;
    underflow += u != 0 && u <= kInfinityBits && r == 0;
    below_min += u == 0 || u < grid.below_min;
    subnormal += r != 0 && r < grid.min_normal;
    overflow += u >= grid.overflow_min && u < kInfinityBits;
    inf += u == kInfinityBits, nan += u > kInfinityBits;
    sum += d, square += d * d, l1 += d < 0 ? -d : d;
    max_bits = max_bits < u ? u : max_bits;
    if (u < kInfinityBits) min_bits = min_bits < u - 1 ? min_bits : u - 1;
  }
  ADA_HOST_DEVICE void Merge(const TransportCounts& of) {
    values += of.values, zeros += of.zeros;
    underflow += of.underflow, below_min += of.below_min, subnormal += of.subnormal;
    overflow += of.overflow, inf += of.inf, nan += of.nan;
    sum += of.sum, square += of.square, l1 += of.l1;
    max_bits = max_bits < of.max_bits ? of.max_bits : max_bits;
    min_bits = min_bits < of.min_bits ? min_bits : of.min_bits;
  }
};

// The counts of a block, and which values its threads take.
struct TransportBlock {
  static constexpr int kThreads = 256;
  TransportCounts threads[kThreads];

  ADA_HOST_DEVICE TransportCounts Merged() const {
    TransportCounts all = TransportCounts::Start();
    for (const TransportCounts& of : threads) all.Merge(of);
    return all;
  }
};

// How values travel: as they are, or rounded to 16 bits.
struct Transport {
  Storage storage = Storage::kF32;
  NumberGrid grid;
  ADA_HOST_DEVICE bool narrow() const { return storage != Storage::kF32; }
  ADA_HOST_DEVICE float Rounded(float value, TransportCounts& counts) const {
    if (!narrow()) return value;
    const float rounded = RoundToGrid(grid, value);
    counts.Add(grid, value, rounded);
    return rounded;
  }
};

// to = round(source), with what is lost on the way. `source(segment, i, narrow)`: value i of a
// segment; narrow: what is sent is rounded.
// Used twice: with a process's own values before they are sent, and with the sum of all parts
// before that goes to all.
template <class Source>
struct RoundSegments {
  static constexpr int kThreads = TransportBlock::kThreads, kPhases = 2;
  using Shared = TransportBlock;
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      const SumSegment& s = segments[at.block];
      TransportCounts own = TransportCounts::Start();
      for (std::int32_t i = at.thread; i < s.count; i += kThreads)
        StoreExact(to, s.at + i, transport.Rounded(source(s, i, transport.narrow()), own));
      if (counts != nullptr) shared.threads[at.thread] = own;
    } else if (counts != nullptr && at.thread == 0) {
      counts[at.block] = shared.Merged();
    }
  }

  const SumSegment* segments = nullptr;
  Transport transport;
  Source source;
  TensorSpan to;
  TransportCounts* counts = nullptr;  // [segments]; null: nothing is rounded
};

// A process's own values: multiplied by the loss scale if they are rounded, and by its share if the
// result is a mean.
struct OwnValues {
  ADA_HOST_DEVICE float operator()(const SumSegment& s, std::int32_t i, bool narrow) const {
    return s.values[i] * (mean ? pass->share : narrow ? pass->loss_scale : 1);
  }

  bool mean = false;
  const PassValues* pass = nullptr;
};

// part 0 + part 1 + ..., the parts of one slice: `slice` values from each process.
struct SumOfParts {
  // As on a CPU: codes are added to 0.
  ADA_HOST_DEVICE float operator()(const SumSegment& s, std::int32_t i, bool narrow) const {
    const std::int64_t at = s.at + i;
    float total = Load(parts, at);
    if (narrow) total = 0.0f + total;
    for (int rank = 1; rank < ranks; ++rank) total = total + Load(parts, rank * slice + at);
    return total;
  }

  int ranks = 0;
  std::int64_t slice = 0;
  TensorSpan parts;
};

// values = sums, without the loss's scale where they were rounded.
// The last step: the sum of all processes becomes the gradient.
struct StoreSegments {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    const SumSegment& s = segments[at.block];
    const float factor = narrow ? pass->loss_scale : 1;
    for (std::int32_t i = at.thread; i < s.count; i += kThreads)
      s.values[i] = Load(sums, s.at + i) / factor;
  }

  const SumSegment* segments = nullptr;
  bool narrow = false;
  const PassValues* pass = nullptr;
  TensorSpan sums;
};

// --- Cutting ---

// How tensors that are summed are cut: into buckets, which travel as a whole, of equal slices, one
// for each process to sum; and tensors and slices into segments, a block of threads each. Only
// whole numbers of the shapes go into it, so that processes agree without a message. Made once for
// a list of tensors, which are seen as one sequence of values, in the order of the list. All
// processes cut alike, but for `slices`, which are those of this one.
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

// bucket_bytes: of fp32 values, at most; a quarter of all where that is less.
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

// --- The op ---

// Buckets of tensors of one kind, and the places of their segments.
class Sums {
 public:
  Sums(const Context& context, const std::vector<Tensor>& tensors, std::int64_t bucket_bytes,
       const NumberFormat& format, bool mean)
      : context_(context),
        mean_(mean),
        cut_(CutForSums(tensors, bucket_bytes, context.link->ranks(), context.link->rank())),
        segments_(context.Keep(cut_.segments)),
        slices_(context.Keep(cut_.slices)) {
    transport_ = {StorageFor(format), GridOf(format)};
    if (transport_.narrow())
      counts_ = context.shared.Allocate((cut_.segments.size() + cut_.slices.size()) *
                                        sizeof(TransportCounts));
  }

  const SumBuckets& cut() const { return cut_; }
  std::int64_t bytes_each() const { return static_cast<std::int64_t>(BytesOf(transport_.storage)); }
  // Values of the largest bucket, padding included.
  std::int64_t largest() const { return cut_.largest_slice() * context_.link->ranks(); }

  // Buffers of work on the side stream: sent, parts and sums of a bucket, then the sum of a slice.
  struct Buffers {
    std::byte *sent = nullptr, *parts = nullptr, *sums = nullptr, *own = nullptr;
  };
  // Launches the sum of one bucket: own values, rounded to the transport's format, go out slice by
  // slice; each process adds the parts of its slice, in fp32, and rounds the sum once; sums come
  // back and are stored as fp32. All processes call it for the same buckets in the same order.
  void Sum(Stream& side, const SumBuckets::Bucket& bucket, const Buffers& buffers) const {
    const auto bytes = static_cast<std::size_t>(bucket.slice * bytes_each());
    const auto view = [&](std::byte* at) { return TensorSpan{at, transport_.storage}; };
    RoundSegments<OwnValues> send{segments_ + bucket.first_segment,
                                  transport_,
                                  {mean_, context_.pass},
                                  view(buffers.sent),
                                  nullptr};
    RoundSegments<SumOfParts> sum{slices_ + bucket.first_of_slice,
                                  transport_,
                                  {context_.link->ranks(), bucket.slice, view(buffers.parts)},
                                  view(buffers.own),
                                  nullptr};
    if (transport_.narrow()) {
      auto* counts = reinterpret_cast<TransportCounts*>(counts_.backend);
      send.counts = counts + bucket.first_segment;
      sum.counts = counts + cut_.segments.size() + bucket.first_of_slice;
    }
    const auto blocks = static_cast<int>(bucket.segments);
    Launch(side, send, blocks);
    context_.link->AllToAll(side, buffers.sent, bytes, buffers.parts);
    Launch(side, sum, static_cast<int>(bucket.of_slice));
    context_.link->AllGather(side, buffers.own, bytes, buffers.sums);
    const StoreSegments store{segments_ + bucket.first_segment, transport_.narrow(), context_.pass,
                              view(buffers.sums)};
    Launch(side, store, blocks);
  }

  // By tensor; waits.
  // What rounding to the transport's format did to the values of each tensor: own values when they
  // were sent, and sums of this process's slices. Nothing where transport is fp32.
  std::vector<TensorStats> Lost() {
    std::vector<TransportCounts> all(cut_.ends.size(), TransportCounts::Start());
    if (transport_.narrow()) {
      context_.shared.Fetch(counts_);
      context_.stream.Synchronize();
      const auto* counts = reinterpret_cast<const TransportCounts*>(counts_.host);
      for (const std::vector<int>* tensors : {&cut_.tensor_of, &cut_.tensor_of_sum})
        for (const int tensor : *tensors) all[static_cast<std::size_t>(tensor)].Merge(*counts++);
    }
    std::vector<TensorStats> stats;
    for (const TransportCounts& counts : all) stats.push_back(StatsOf(counts));
    return stats;
  }

 private:
  static TensorStats StatsOf(const TransportCounts& counts) {
    TensorStats stats;
    if (counts.values == 0) return stats;
    stats.numel = counts.values;
    stats.zeros_before = counts.zeros, stats.below_min = counts.below_min;
    stats.underflow = counts.underflow, stats.zeros_after = counts.zeros + counts.underflow;
    stats.subnormal = counts.subnormal, stats.overflow = counts.overflow;
    stats.inf = counts.inf, stats.nan = counts.nan;
    stats.max_abs = OfBits(counts.max_bits), stats.l1 = counts.l1;
    stats.full = true;
    FinishStats(counts.sum, counts.square, counts.min_bits, stats);
    return stats;
  }

  Context context_;
  bool mean_;
  Transport transport_;
  SumBuckets cut_;
  const SumSegment *segments_, *slices_;
  SharedMemory counts_;  // of segments, then of slices; none where nothing is rounded
};

// Made where several processes share a run. In a backward pass
// step/distributed_gradients.cpp calls Take(0), Take(1), ... in the order in which
// gradients are finished, then Finish; buckets are summed on the link's stream while the pass goes
// on.
class CudaGradientSums final : public GradientSums {
 public:
  CudaGradientSums(const Context& context, const GradientSumsSpec& spec)
      : context_(context),
        gradients_(context, spec.gradients, spec.bucket_bytes, spec.transport, /*mean=*/false),
        averages_(context, spec.averages, spec.bucket_bytes, kFp32, /*mean=*/true) {
    const std::int64_t bytes = std::max(gradients_.largest() * gradients_.bytes_each(),
                                        averages_.largest() * averages_.bytes_each());
    for (std::byte** buffer : {&buffers_.sent, &buffers_.parts, &buffers_.sums})
      *buffer = context.Allocate<std::byte>(bytes);
    buffers_.own = context.Allocate<std::byte>(bytes / context.link->ranks());
  }

  void Take(int index) override {
    if (index == 0) taken_ = 0, full_ = 0;  // a pass that could not be recorded begins anew
    ADA_CHECK(index == taken_++);
    const SumBuckets& cut = gradients_.cut();
    // A bucket is full once its last value is there, which may be in the middle of a tensor.
    const std::int64_t there = cut.ends[static_cast<std::size_t>(index)];
    const std::size_t first = full_;
    while (full_ < cut.buckets.size() && cut.buckets[full_].end <= there) ++full_;
    if (full_ == first) return;
    context_.link->Aside([&](Stream& side) {
      context_.side_stream.JoinTo(side);  // gradients may still be under way there
      for (std::size_t i = first; i < full_; ++i) gradients_.Sum(side, cut.buckets[i], buffers_);
    });
  }

  void Finish() override {
    ADA_CHECK(full_ == gradients_.cut().buckets.size());
    // Averages, as of batch norms' running statistics, are means over processes and travel in fp32.
    if (!averages_.cut().buckets.empty())
      context_.link->Aside([&](Stream& side) {
        for (const SumBuckets::Bucket& bucket : averages_.cut().buckets)
          averages_.Sum(side, bucket, buffers_);
      });
    context_.link->Join();
  }

  std::vector<TensorStats> Lost() override { return gradients_.Lost(); }
  std::int64_t bytes() const override {
    return gradients_.cut().values() * gradients_.bytes_each();
  }
  std::int64_t buckets() const override {
    return static_cast<std::int64_t>(gradients_.cut().buckets.size());
  }

 private:
  Context context_;
  Sums gradients_, averages_;
  Sums::Buffers buffers_;  // of one bucket: they come one after the other
  int taken_ = 0;
  std::size_t full_ = 0;  // buckets of this pass
};

}  // namespace

std::unique_ptr<GradientSums> MakeGradientSumsOp(const Context& context,
                                                 const GradientSumsSpec& spec) {
  ADA_CHECK(spec.transport == kFp32 || spec.transport == kFp16 || spec.transport == kBf16);
  return std::make_unique<CudaGradientSums>(context, spec);
}

}  // namespace ada::backend::cuda
