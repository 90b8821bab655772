// Sums of gradients over processes, on a thread of its own while more of them are being computed.
//
// All gradients lie one after the other in the order in which they come, cut into buckets. A bucket
// that is full is summed: each process gets its slice of it from all (Communicator::AllToAll), adds
// the parts in an order that Reduction gives, and sends the sum to all (AllGather). So equal
// numbers of processes give equal bytes, however long a message takes and however buckets are cut.
#pragma once
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "number/number_format.h"
#include "number/stats.h"
#include "parallel/communicator.h"

namespace ada::parallel {

// The sums of all processes' values, at once and in the caller's thread, in the same order.
void SumOverRanks(Communicator& communicator, std::vector<float>& values);

// How parts become a sum. All gradients of n processes are n equal pieces (whole cache lines but
// the last): in a ring piece k is added up from the part of process k + 1 on, around to that of k,
// as a reduce-scatter passes it on; else from that of process 0 on. Each partial sum is rounded to
// `format`, the first part too.
struct Reduction {
  bool ring = false;
  // That of transport, or fp32, where transport is not fp32.
  NumberFormat format = kFp32;
  // By gradient: its sums stay fp32 all the same; empty: none do.
  std::vector<bool> exempt = {};
};

class GradientSums {
 public:
  // sizes: values of each gradient, in the order of Add. bucket_bytes: at most; a quarter of all
  // where that is less. transport: fp32, or fp16 or bf16: then each part and each sum is rounded
  // once before it travels. `communicator` is this object's alone and outlives it.
  GradientSums(Communicator& communicator, const std::vector<std::int64_t>& sizes,
               std::int64_t bucket_bytes, const NumberFormat& transport = kFp32,
               const Reduction& reduction = {});
  ~GradientSums();
  GradientSums(const GradientSums&) = delete;

  // Gradient `index` of this process, times `factor`; copied. Once each, in their order.
  void Add(int index, const float* values, float factor = 1);
  // Waits until all are summed, and throws what a collective call threw.
  void Finish();
  // The sum of gradient `index`, divided by `factor`; after Finish, until the next Add.
  void Take(int index, float* values, float factor = 1) const;

  // What rounding lost of gradient `index` since the last Add of it, on this process: of its own
  // part, and of the slices of sums that it made. Values carry the factor. All 0 in fp32.
  TensorStats lost(int index) const;

  double waited_seconds() const { return waited_; }  // in Finish, in all
  std::int64_t bytes() const;                        // of the gradients as they travel
  std::int64_t buckets() const;

 private:
  struct State;
  // The thread's too: where an error is on its way it may still wait for others.
  std::shared_ptr<State> state_;
  std::thread thread_;
  double waited_ = 0;
};

}  // namespace ada::parallel
