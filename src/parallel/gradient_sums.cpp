// Runs the thread that sums full buckets while the caller adds gradients, and hands its errors to
// the caller.
#include "parallel/gradient_sums.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <utility>

#include "error.h"

namespace ada::parallel {
namespace {

constexpr std::int64_t kLine = 16;  // values of a cache line: slices begin at whole ones

std::int64_t RoundedUp(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

// Sums n values, a multiple of the ranks. parts: n values; own: a slice.
// Reduce-scatter and gather by hand, so that the order of additions is ours: MPI's own sums may
// take any.
void SumSlices(Communicator& communicator, float* values, std::int64_t n, float* parts,
               float* own) {
  const std::int64_t slice = n / communicator.ranks();
  const std::size_t bytes = static_cast<std::size_t>(slice) * sizeof(float);
  communicator.AllToAll(values, bytes, parts);
  std::copy_n(parts, slice, own);
  for (int rank = 1; rank < communicator.ranks(); ++rank) {
    const float* part = parts + rank * slice;
    for (std::int64_t i = 0; i < slice; ++i) own[i] += part[i];
  }
  communicator.AllGather(own, bytes, values);
}

double SteadyNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

// Padding with zeros gives every process a slice of the same size.
void SumOverRanks(Communicator& communicator, std::vector<float>& values) {
  const std::size_t count = values.size();
  values.resize(static_cast<std::size_t>(
      RoundedUp(static_cast<std::int64_t>(count), kLine * communicator.ranks())));
  std::vector<float> parts(values.size());
  std::vector<float> own(values.size() / static_cast<std::size_t>(communicator.ranks()));
  SumSlices(communicator, values.data(), static_cast<std::int64_t>(values.size()), parts.data(),
            own.data());
  values.resize(count);
}

// What the two threads share. The caller writes values[filled ...), the thread works on whole
// buckets before it: they never touch the same values, so that the mutex guards the counters alone.
struct GradientSums::State {
  State(Communicator& communicator, const std::vector<std::int64_t>& sizes,
        std::int64_t bucket_bytes, const NumberFormat& transport, const Reduction& reduction);
  void Work();
  void Sum(std::int64_t begin, std::int64_t end);
  void SumNarrow(std::int64_t begin, std::int64_t end);
  template <class PartAt>
  void AddParts(std::int64_t first_value, std::int64_t slice, const PartAt& part_at);
  float Rounded(std::int64_t at, float value);
  std::uint16_t Encode(std::int64_t at, float value);
  float Decode(std::uint16_t code) const;
  std::int64_t EndOf(std::int64_t bucket) const {
    return std::min((bucket + 1) * bucket_values, static_cast<std::int64_t>(values.size()));
  }

  Communicator& communicator;
  const NumberFormat transport;
  const Reduction reduction;
  const NumberFormat narrow;        // of both, that which is not fp32
  std::vector<std::int64_t> first;  // where each gradient begins; at the end: all values
  std::int64_t bucket_values = 0, buckets = 0;
  std::vector<float> values;      // padded so that every bucket has equal slices
  std::vector<float> parts, own;  // of a slice: by rank; their sum
  // Narrow transport: codes that leave, and those that came.
  std::vector<std::uint16_t> sent, codes;
  std::vector<TensorStats> lost;  // mean and l2 are sums

  std::mutex mutex;  // guards what follows
  std::condition_variable work, done;
  std::int64_t filled = 0;  // values of this round
  std::int64_t summed = 0;  // buckets of this round
  bool failed = false, stop = false;
  std::exception_ptr error;  // of the thread, until the caller takes it
};

GradientSums::State::State(Communicator& with, const std::vector<std::int64_t>& sizes,
                           std::int64_t bucket_bytes, const NumberFormat& format,
                           const Reduction& how)
    : communicator(with),
      transport(format),
      reduction(how),
      narrow(format != kFp32 ? format : how.format),
      first(1),
      lost(sizes.size()) {
  ADA_CHECK(transport == kFp32 || transport == kFp16 || transport == kBf16);
  ADA_CHECK(how.format == kFp32 || how.format == narrow);
  ADA_CHECK(how.exempt.empty() || (transport == kFp32 && how.exempt.size() == sizes.size()));
  for (const std::int64_t size : sizes) first.push_back(first.back() + size);
  const std::int64_t slices = kLine * communicator.ranks();
  // bucket_bytes in fp32 values; a quarter of all lets sums begin before the backward pass is over,
  // however small the network is.
  const std::int64_t most = std::min<std::int64_t>(bucket_bytes / 4, (first.back() + 3) / 4);
  bucket_values = RoundedUp(std::max<std::int64_t>(most, 1), slices);
  const std::int64_t padded = RoundedUp(first.back(), slices);
  buckets = (padded + bucket_values - 1) / bucket_values;
  values.resize(static_cast<std::size_t>(padded));
  const std::int64_t largest = std::min(bucket_values, padded);
  own.resize(static_cast<std::size_t>(largest / communicator.ranks()));
  if (transport == kFp32) {
    parts.resize(static_cast<std::size_t>(largest));
  } else {
    sent.resize(static_cast<std::size_t>(largest));
    codes.resize(static_cast<std::size_t>(largest));
  }
}

GradientSums::GradientSums(Communicator& communicator, const std::vector<std::int64_t>& sizes,
                           std::int64_t bucket_bytes, const NumberFormat& transport,
                           const Reduction& reduction)
    : state_(std::make_shared<State>(communicator, sizes, bucket_bytes, transport, reduction)),
      thread_([state = state_] { state->Work(); }) {}

GradientSums::~GradientSums() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
  }
  state_->work.notify_all();
  // An error ends the process soon, and must not wait for processes that wait for this one.
  if (std::uncaught_exceptions() > 0)
    thread_.detach();
  else
    thread_.join();
}

std::int64_t GradientSums::buckets() const { return state_->buckets; }

std::int64_t GradientSums::bytes() const {
  return state_->first.back() * (state_->transport == kFp32 ? 4 : 2);
}

// A round is over when all buckets are summed: the first Add after it begins the next.
void GradientSums::Add(int index, const float* values, float factor) {
  State& s = *state_;
  const auto i = static_cast<std::size_t>(index);
  std::int64_t before = 0;
  {
    const std::lock_guard lock(s.mutex);
    if (s.filled == s.first.back() && s.summed == s.buckets) s.filled = s.summed = 0;
    before = s.filled;
  }
  ADA_CHECK(i + 1 < s.first.size() && s.first[i] == before);
  const std::int64_t size = s.first[i + 1] - s.first[i];
  float* to = s.values.data() + s.first[i];
  if (factor == 1)
    std::copy_n(values, size, to);
  else
    for (std::int64_t k = 0; k < size; ++k) to[k] = values[k] * factor;
  s.lost[i] = TensorStats{};
  const std::lock_guard lock(s.mutex);
  s.filled += size;
  s.work.notify_all();
}

void GradientSums::Finish() {
  State& s = *state_;
  const double start = SteadyNow();
  std::unique_lock lock(s.mutex);
  ADA_CHECK(s.filled == s.first.back());
  s.done.wait(lock, [&s] { return s.summed == s.buckets || s.failed; });
  waited_ += SteadyNow() - start;
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
  ADA_CHECK(!s.failed);
}

void GradientSums::Take(int index, float* values, float factor) const {
  const State& s = *state_;
  const auto i = static_cast<std::size_t>(index);
  const float* from = s.values.data() + s.first[i];
  const std::int64_t size = s.first[i + 1] - s.first[i];
  if (factor == 1)
    std::copy_n(from, size, values);
  else
    for (std::int64_t k = 0; k < size; ++k) values[k] = from[k] / factor;
}

TensorStats GradientSums::lost(int index) const {
  TensorStats stats = state_->lost[static_cast<std::size_t>(index)];
  if (stats.numel == 0) return stats;
  const auto n = static_cast<double>(stats.numel);
  const double square = stats.l2;
  stats.mean /= n;
  stats.std = std::sqrt(std::max(square / n - stats.mean * stats.mean, 0.0));
  stats.l2 = std::sqrt(square);
  stats.full = true;
  return stats;
}

// An error stops the thread's work for good; it waits until the object dies.
void GradientSums::State::Work() {
  std::unique_lock lock(mutex);
  while (true) {
    const auto ready = [this] {
      return summed < buckets && filled >= std::min(EndOf(summed), first.back());
    };
    work.wait(lock, [&] { return stop || (!failed && ready()); });
    if (stop) return;
    const std::int64_t bucket = summed;
    lock.unlock();
    std::exception_ptr caught;
    try {
      if (transport == kFp32)
        Sum(bucket * bucket_values, EndOf(bucket));
      else
        SumNarrow(bucket * bucket_values, EndOf(bucket));
    } catch (...) {
      caught = std::current_exception();
    }
    lock.lock();
    // Counted even where it failed, since the caller wakes by `failed`.
    ++summed;
    failed = caught != nullptr;
    // One thread at a time holds the error, and the last one frees it.
    error = std::move(caught);
    if (failed || summed == buckets) done.notify_all();
  }
}

void GradientSums::State::Sum(std::int64_t begin, std::int64_t end) {
  float* const mine = values.data() + begin;
  if (!reduction.ring && reduction.format == kFp32)
    return SumSlices(communicator, mine, end - begin, parts.data(), own.data());
  const std::int64_t slice = (end - begin) / communicator.ranks();
  const std::size_t bytes = static_cast<std::size_t>(slice) * sizeof(float);
  communicator.AllToAll(mine, bytes, parts.data());
  AddParts(begin + communicator.rank() * slice, slice,
           [&](std::int64_t at) { return parts[static_cast<std::size_t>(at)]; });
  communicator.AllGather(own.data(), bytes, mine);
}

// The sums of a slice whose first value is `first_value` of all; part_at(rank * slice + i).
template <class PartAt>
void GradientSums::State::AddParts(std::int64_t first_value, std::int64_t slice,
                                   const PartAt& part_at) {
  const int ranks = communicator.ranks();
  const std::int64_t piece = RoundedUp(first.back(), kLine * ranks) / ranks;
  const bool rounds = reduction.format != kFp32;
  for (std::int64_t i = 0; i < slice; ++i) {
    const std::int64_t at = first_value + i;
    const int from = reduction.ring ? static_cast<int>(at / piece) + 1 : 0;
    float sum = 0;
    for (int k = 0; k < ranks; ++k) {
      sum += part_at((from + k) % ranks * slice + i);
      // Parts and whole sums that travel in the format are rounded where they leave.
      const bool leaves = transport != kFp32 && (k == 0 || k == ranks - 1);
      if (rounds && !leaves) sum = Rounded(at, sum);
    }
    own[static_cast<std::size_t>(i)] = sum;
  }
}

// The same, of 16-bit codes: every part is rounded where it leaves, and so is the sum.
void GradientSums::State::SumNarrow(std::int64_t begin, std::int64_t end) {
  const std::int64_t slice = (end - begin) / communicator.ranks();
  const std::size_t bytes = static_cast<std::size_t>(slice) * sizeof(std::uint16_t);
  for (std::int64_t i = 0; i < end - begin; ++i)
    sent[static_cast<std::size_t>(i)] =
        Encode(begin + i, values[static_cast<std::size_t>(begin + i)]);
  communicator.AllToAll(sent.data(), bytes, codes.data());
  const std::int64_t mine = begin + communicator.rank() * slice;
  AddParts(mine, slice,
           [&](std::int64_t at) { return Decode(codes[static_cast<std::size_t>(at)]); });
  for (std::int64_t i = 0; i < slice; ++i)
    sent[static_cast<std::size_t>(i)] = Encode(mine + i, own[static_cast<std::size_t>(i)]);
  communicator.AllGather(sent.data(), bytes, codes.data());
  for (std::int64_t i = 0; i < end - begin; ++i)
    values[static_cast<std::size_t>(begin + i)] = Decode(codes[static_cast<std::size_t>(i)]);
}

// Rounds and counts value `at`. What is not finite stays, even where the format saturates.
float GradientSums::State::Rounded(std::int64_t at, float value) {
  const float rounded = std::isfinite(value) ? RoundTo(narrow, value) : value;
  if (at < first.back()) {
    const auto after = std::upper_bound(first.begin(), first.end(), at);
    const std::size_t index = static_cast<std::size_t>(after - first.begin()) - 1;
    if (!reduction.exempt.empty() && reduction.exempt[index]) return value;
    TensorStats& count = lost[index];
    const float size = std::fabs(value);
    ++count.numel;
    count.zeros_before += value == 0 ? 1 : 0;
    count.zeros_after += rounded == 0 ? 1 : 0;
    count.underflow += value != 0 && rounded == 0 ? 1 : 0;
    count.below_min += size < static_cast<float>(narrow.smallest_subnormal()) ? 1 : 0;
    count.subnormal +=
        rounded != 0 && std::fabs(rounded) < static_cast<float>(narrow.smallest_normal()) ? 1 : 0;
    count.overflow += std::isfinite(value) && !std::isfinite(rounded) ? 1 : 0;
    count.inf += std::isinf(value) ? 1 : 0;
    count.nan += std::isnan(value) ? 1 : 0;
    // By bit pattern, in which inf and then NaN are the largest.
    if (std::bit_cast<std::uint32_t>(size) > std::bit_cast<std::uint32_t>(count.max_abs))
      count.max_abs = size;
    if (std::isfinite(value) && size > 0 && (count.min_abs == 0 || size < count.min_abs))
      count.min_abs = size;
    // Sums until they are read.
    count.mean += static_cast<double>(value);
    count.l1 += static_cast<double>(size);
    count.l2 += static_cast<double>(value) * static_cast<double>(value);
  }
  return rounded;
}

std::uint16_t GradientSums::State::Encode(std::int64_t at, float value) {
  const float rounded = Rounded(at, value);
  return transport == kBf16 ? EncodeBf16(rounded) : EncodeFp16(rounded);
}

float GradientSums::State::Decode(std::uint16_t code) const {
  return transport == kBf16 ? DecodeBf16(code) : DecodeFp16(code);
}

}  // namespace ada::parallel
