// Integer minima, maxima and sums, whose order does not matter; only logarithms are merged in the
// order of blocks.
#include "backend/cpu/rounding/rule_inputs.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/rounding/blocks.h"
#include "number/number_grid.h"

namespace ada::backend::cpu {
namespace {

double Magnitude(std::uint32_t bits) { return static_cast<double>(OfBits(bits)); }

// Count, mean and sum of squared deviations.
struct LogMoments {
  double count = 0, mean = 0, m2 = 0;
  void Merge(const LogMoments& other) {
    if (other.count == 0) return;
    const double total = count + other.count, delta = other.mean - mean;
    m2 += other.m2 + delta * delta * (count * other.count / total);
    mean = count == 0 ? other.mean : mean + delta * (other.count / total);
    count = total;
  }
};

// Deviations are taken from the first logarithm, so that equal magnitudes have none.
LogMoments LogsOf(const float* x, std::int64_t n) {
  LogMoments logs;
  double first = 0, sum = 0, square = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (x[i] == 0) continue;
    const double log = std::log(std::fabs(static_cast<double>(x[i])));
    if (logs.count == 0) first = log;
    logs.count += 1;
    sum += log - first;
    square += (log - first) * (log - first);
  }
  if (logs.count == 0) return logs;
  logs.mean = first + sum / logs.count;
  logs.m2 = std::max(square - sum * sum / logs.count, 0.0);
  return logs;
}

void SetLogs(const LogMoments& logs, scaling::Observation& seen) {
  seen.log_mean = logs.mean;
  seen.log_std = logs.count > 0 ? std::sqrt(logs.m2 / logs.count) : 0;
}

}  // namespace

ChannelMagnitudes MagnitudesOfImages(const Context& context, const Tensor& tensor, int rows) {
  const Shape& shape = tensor.shape;
  std::vector<ChannelMagnitudes> own(static_cast<std::size_t>(context.pool.size()),
                                     ChannelMagnitudes(shape.c));
  ForBlocks(context, shape, rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t, int worker) {
              ChannelMagnitudes& m = own[static_cast<std::size_t>(worker)];
              context.kernels.channel_magnitudes(At(tensor, image), images * shape.h * shape.w,
                                                 shape.c, m.min_bits.data(), m.max_bits.data());
            });
  ChannelMagnitudes total = own[0];
  for (const ChannelMagnitudes& m : own)
    for (std::size_t c = 0; c < m.min_bits.size(); ++c) {
      total.min_bits[c] = std::min(total.min_bits[c], m.min_bits[c]);
      total.max_bits[c] = std::max(total.max_bits[c], m.max_bits[c]);
    }
  return MagnitudesOfAll(context, std::move(total));
}

TensorMoments MomentsOfAll(const Context& context, const TensorMoments& mine, std::int64_t values) {
  if (!IsShared(context.shared.rules)) return mine;
  return JoinMoments(*context.shared.rules, mine, static_cast<double>(values));
}

ChannelMagnitudes MagnitudesOfAll(const Context& context, ChannelMagnitudes mine) {
  if (!IsShared(context.shared.rules)) return mine;
  const std::vector<std::uint32_t> low = GatherAll(*context.shared.rules, mine.min_bits);
  const std::vector<std::uint32_t> high = GatherAll(*context.shared.rules, mine.max_bits);
  const std::size_t channels = mine.min_bits.size();
  for (std::size_t i = 0; i < low.size(); ++i) {
    mine.min_bits[i % channels] = std::min(mine.min_bits[i % channels], low[i]);
    mine.max_bits[i % channels] = std::max(mine.max_bits[i % channels], high[i]);
  }
  return mine;
}

ChannelMagnitudes MagnitudesOfRows(const Context& context, const float* weights,
                                   const WeightRows& rows) {
  ChannelMagnitudes total(rows.groups * rows.channels);
  context.pool.For(rows.groups * rows.channels, [&](std::int64_t c, int) {
    std::uint32_t low = 0xffffffffu, high = 0;
    const std::int64_t group = c / rows.channels, channel = c % rows.channels;
    for (std::int64_t input = 0; input < rows.inputs; ++input) {
      const std::int64_t row = (group * rows.inputs + input) * rows.channels + channel;
      for (const float* w = weights + row * rows.values; w != weights + (row + 1) * rows.values;
           ++w) {
        const std::uint32_t bits = MagnitudeBits(*w);
        low = std::min(low, bits - 1);
        high = std::max(high, bits);
      }
    }
    total.min_bits[static_cast<std::size_t>(c)] = low;
    total.max_bits[static_cast<std::size_t>(c)] = high;
  });
  return total;
}

void ObserveProducts(const ChannelMagnitudes& dy, const ChannelMagnitudes& w,
                     scaling::Observation& seen) {
  seen.product_min = seen.product_max = 0;
  std::uint32_t largest = 0;
  for (std::size_t c = 0; c < dy.max_bits.size(); ++c) {
    largest = std::max(largest, dy.max_bits[c]);
    if (dy.max_bits[c] == 0 || w.max_bits[c] == 0) continue;
    const double low = Magnitude(dy.min_bits[c] + 1) * Magnitude(w.min_bits[c] + 1);
    const double high = Magnitude(dy.max_bits[c]) * Magnitude(w.max_bits[c]);
    seen.product_min = seen.product_max == 0 ? low : std::min(seen.product_min, low);
    seen.product_max = std::max(seen.product_max, high);
  }
  if (largest >= kInfinityBits)
    seen.product_max = Magnitude(largest);  // as bits a NaN is the largest
}

void ObserveLogs(const Context& context, const Tensor& dy, int rows, scaling::Observation& seen) {
  std::vector<LogMoments> blocks(static_cast<std::size_t>(BlockCount(rows, BlockImages(dy.shape))));
  ForBlocks(context, dy.shape, rows,
            [&](std::int64_t image, std::int64_t images, std::int64_t block, int) {
              const std::int64_t n = images * dy.shape.per_image();
              std::vector<float> wide(static_cast<std::size_t>(n));
              context.kernels.widen(At(dy, image), wide.data(), n);
              blocks[static_cast<std::size_t>(block)] = LogsOf(wide.data(), n);
            });
  LogMoments total;
  for (const LogMoments& block : blocks) total.Merge(block);
  if (IsShared(context.shared.rules)) {
    const std::vector<LogMoments> parts = GatherAll(*context.shared.rules, total);
    total = LogMoments();
    for (const LogMoments& part : parts) total.Merge(part);
  }
  SetLogs(total, seen);
}

void ObserveLogs(const float* dy, std::int64_t n, scaling::Observation& seen) {
  SetLogs(LogsOf(dy, n), seen);
}

bool TailCounter::Begin(const scaling::LayerScaler* scaler) {
  wanted_ = scaler != nullptr && scaling::WantsTail(*scaler);
  if (!wanted_) return false;
  for (Own& own : counts_) own.counts = TailCounts{};
  return true;
}

// The counts of all processes.
void TailCounter::AddOthers(scaling::ExponentTail& tail, std::uint32_t& max_bits) const {
  struct Part {
    scaling::ExponentTail tail;
    std::uint32_t max_bits;
  };
  const std::vector<Part> parts = GatherAll(*context_.shared.rules, Part{tail, max_bits});
  tail = scaling::ExponentTail();
  for (const Part& part : parts) {
    for (int bin = 0; bin < scaling::ExponentTail::kBins; ++bin)
      tail.bins[bin] += part.tail.bins[bin];
    tail.nonzero += part.tail.nonzero;
    max_bits = std::max(max_bits, part.max_bits);
  }
}

void TailCounter::Finish(scaling::LayerScaler* scaler) {
  if (!wanted_) return;
  scaling::ExponentTail tail;
  std::uint32_t max_bits = 0;
  for (const Own& own : counts_) {
    for (int bin = 0; bin < scaling::ExponentTail::kBins; ++bin)
      tail.bins[bin] += own.counts.bins[bin];
    tail.nonzero += own.counts.nonzero;
    max_bits = std::max(max_bits, own.counts.max_bits);
  }
  if (IsShared(context_.shared.rules)) AddOthers(tail, max_bits);
  if (max_bits >= kInfinityBits) return;
  tail.largest = Magnitude(max_bits);
  scaling::ObserveTail(*scaler, tail);
}

}  // namespace ada::backend::cpu
