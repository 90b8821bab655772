// The keys of `parallel`. Every build reads them; what they ask for may need one with MPI.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

const EnumNames<GradientTransport> kTransports = {{"fp32", GradientTransport::kFp32},
                                                  {"bf16", GradientTransport::kBf16},
                                                  {"fp16", GradientTransport::kFp16}};
const EnumNames<SharedStatistics> kStatistics = {{"global", SharedStatistics::kGlobal},
                                                 {"local", SharedStatistics::kLocal}};

const EnumNames<ReductionConfig::Order> kOrders = {{"ranks", ReductionConfig::Order::kRanks},
                                                   {"ring", ReductionConfig::Order::kRing}};

Section ReductionSection(ParallelConfig& parallel) {
  ReductionConfig& reduction = parallel.reduction;
  Section section;
  section.path = "parallel.reduction";
  section.short_key = "order";
  section.keys = {
      Choice("order", reduction.order, kOrders,
             "ranks: in the order of processes; ring: value by value from the process after the "
             "one that ends with the sum, as a ring's reduce-scatter makes it"),
      Choice("format", reduction.format, kTransports,
             "in which each partial sum is kept; that of `gradients`, where this is not fp32")
          .Default("ranks: fp32; ring: as `gradients`"),
  };
  section.check = [&parallel](const YamlNode& map, const ReadContext& context) {
    constexpr auto kFp32 = GradientTransport::kFp32;
    const GradientTransport format = parallel.reduction.format.value_or(kFp32);
    if (format == kFp32 || parallel.gradients == kFp32 || format == parallel.gradients) return;
    context.problems.Add(*map.Find("format"), Join(context.path, "format"),
                         "must be fp32 or that of parallel.gradients, in which sums travel");
  };
  return section;
}

}  // namespace

// A key is written only if it differs from its default. Comparing members through pointers keeps a
// single place for defaults, ParallelConfig.
Section ParallelSection(ParallelConfig& parallel) {
  const auto differs = [&parallel](auto ParallelConfig::*key) {
    return [&parallel, key] { return !(parallel.*key == ParallelConfig().*key); };
  };
  Section section;
  section.path = "parallel";
  section.keys = {
      Integer("ranks", parallel.ranks, FromTo(0, 65536),
              "processes that share each batch, which a launcher starts (mpirun -n 4); 0: as many "
              "as it started")
          .WrittenIf(differs(&ParallelConfig::ranks)),
      Choice("gradients", parallel.gradients, kTransports,
             "the format in which weight gradients travel between processes")
          .WrittenIf(differs(&ParallelConfig::gradients)),
      Nested("reduction", ReductionSection(parallel),
             "how their sums are made; `reduction: ring` is short")
          .WrittenIf(differs(&ParallelConfig::reduction)),
      Choice("statistics", parallel.statistics, kStatistics,
             "what the rules of layers look at: the gradients of all processes, or of each its "
             "own (not with adaptive's reference)")
          .WrittenIf(differs(&ParallelConfig::statistics)),
      Switch("sync_batch_norm", parallel.sync_batch_norm,
             "batch norms take mean and variance over all processes, not over each one's part")
          .WrittenIf(differs(&ParallelConfig::sync_batch_norm)),
      Number("bucket_mb", parallel.bucket_mb, FromTo(0.001, 1024),
             "MiB of gradients that travel together, at most; small networks take a quarter of "
             "theirs")
          .WrittenIf(differs(&ParallelConfig::bucket_mb)),
      Number("timeout_seconds", parallel.timeout_seconds, FromTo(1, 1e6),
             "how long processes wait for one that does not come before they end")
          .WrittenIf(differs(&ParallelConfig::timeout_seconds)),
  };
  return section;
}

}  // namespace ada::config
