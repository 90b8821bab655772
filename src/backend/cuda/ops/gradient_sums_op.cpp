// Sums over processes, bucket by bucket during the backward pass: each process gets its slice of a
// bucket from all, adds the parts in the order of processes, and sends the sum to all.
#include <algorithm>

#include "backend/cuda/link.h"
#include "backend/cuda/op_makers.h"
#include "backend/cuda/ops/sum_buckets.h"
#include "backend/cuda/side_stream.h"
#include "backend/stats_rules.h"
#include "error.h"

namespace ada::backend::cuda {
namespace {

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
