// The keys of `train`, `evaluate`, `checkpoint` and `parallel`. run/session.cpp asks for the limits
// of a run, its evaluations and checkpoints; step/trainer.cpp for what happens within a step;
// optim/optimizer.cpp clips. Every build reads `parallel`; what it asks for may need a build with
// MPI.
#include "config/sections/sections.h"

namespace ada::config {
namespace {

// kPreset has no word: it is the value if the key is missing, and is not written.
const EnumNames<OnOverflow> kOnOverflow = {{"skip", OnOverflow::kSkip},
                                           {"retry", OnOverflow::kRetry}};
const EnumNames<ScheduleOnSkip> kScheduleOnSkip = {
    {"advance", ScheduleOnSkip::kAdvance},
    {"hold", ScheduleOnSkip::kHold},
};

const EnumNames<BestMetric> kBestMetrics = {{"task", BestMetric::kTask},
                                            {"loss", BestMetric::kLoss}};

const EnumNames<EvaluatedWeights> kEvaluated = {
    {"both", EvaluatedWeights::kBoth},
    {"ema", EvaluatedWeights::kEma},
    {"trained", EvaluatedWeights::kTrained},
};

// The average is kept from the first update on; evaluations and checkpoints may take it.
Section EmaSection(EmaConfig& ema) {
  Section section;
  section.path = "train.ema";
  section.keys = {
      Number("decay", ema.decay, FromBelow(0, 1),
             "share of the average that stays; 0: none is kept"),
      Integer("every", ema.every, FromTo(1, kMostSteps),
              "updates between two steps of the average"),
      Switch("warmup", ema.warmup, "in the average's step n at most (1 + n) / (10 + n) stays"),
  };
  return section;
}

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

// None of these keys depends on a choice, so the section has no discriminator; label_smoothing and
// class_weights belong to one task each, which CheckTask looks at.
Section TrainSection(TrainConfig& train) {
  Section section;
  section.path = "train";
  section.keys = {
      Integer("epochs", train.epochs, FromTo(0, 1'000'000),
              "passes over the training data; 0: as many as max_steps takes")
          .Default("1; of task language with max_steps: 0"),
      Integer("max_steps", train.max_steps, FromTo(0, kMostSteps),
              "stop after this step; 0: no limit"),
      Number("max_minutes", train.max_minutes, AtLeast(0), "stop after this time; 0: no limit"),
      Integer("accumulate", train.accumulate, FromTo(1, 1'000'000),
              "parts in which a batch is computed; their gradients are summed"),
      Number("clip_norm", train.clip_norm, AtLeast(0),
             "largest norm of all unscaled gradients together; 0: no clipping"),
      Choice("on_overflow", train.on_overflow, kOnOverflow,
             "what a step does whose gradients are not finite: leave the weights alone, or try "
             "the same update again with the next batch")
          .Default("what the preset does, else skip"),
      Integer("max_retries", train.max_retries, FromTo(0, kMostSteps),
              "attempts of a step beyond the first, under on_overflow: retry"),
      Choice("schedule_on_skip", train.schedule_on_skip, kScheduleOnSkip,
             "whether a skipped step moves the learning rate on"),
      Number("label_smoothing", train.label_smoothing, FromBelow(0, 1),
             "share of the target spread over all classes"),
      ClassWeightsKey(train.class_weights),
      Integer("stop_after_skips", train.stop_after_skips, FromTo(0, kMostSteps),
              "end the run after so many skipped steps in a row; 0: never"),
      Nested("ema", EmaSection(train.ema),
             "an exponential moving average of the weights, beside them")
          .WrittenIf([&train] { return train.ema.decay > 0; }),
  };
  section.check = [&train](const YamlNode& map, const ReadContext& context) {
    // A run with neither epochs nor steps would end before it began.
    const YamlNode* epochs = map.Find("epochs");
    if (epochs != nullptr && train.epochs == 0 && train.max_steps == 0)
      context.problems.Add(*epochs, Join(context.path, "epochs"),
                           "expected 1 or more; 0 goes with max_steps");
  };
  return section;
}

// Keys with the default value are left out of a written configuration where most runs have no use
// for them: an average of weights, batch norms and another metric.
Section EvaluateSection(EvaluateConfig& evaluate) {
  Section section;
  section.path = "evaluate";
  section.keys = {
      Integer("every_epochs", evaluate.every_epochs, FromTo(0, 1'000'000),
              "epochs between evaluations; 0: only at the end"),
      Choice("metric", evaluate.metric, kBestMetrics,
             "what decides which evaluation is the best; task: top-1 accuracy, mIoU, mAP, of "
             "language the loss")
          .WrittenIf([&evaluate] { return evaluate.metric != EvaluateConfig().metric; }),
      Choice(
          "weights", evaluate.weights, kEvaluated,
          "what is evaluated where train.ema keeps an average, which then decides about the best")
          .WrittenIf([&evaluate] { return evaluate.weights != EvaluateConfig().weights; }),
      RecomputeBatchNormKey(evaluate.batch_norm),
  };
  return section;
}

// The two intervals are independent: a checkpoint is due when either says so.
Section CheckpointSection(CheckpointConfig& checkpoint) {
  Section section;
  section.path = "checkpoint";
  section.keys = {
      Integer("every_epochs", checkpoint.every_epochs, FromTo(0, 1'000'000),
              "epochs between checkpoints; 0: never; the last step always has one"),
      Integer("every_steps", checkpoint.every_steps, FromTo(0, kMostSteps),
              "steps between checkpoints; 0: never"),
      Integer("keep", checkpoint.keep, FromTo(1, 1'000'000), "newest checkpoints kept"),
      Switch("best", checkpoint.best, "keep the checkpoint of the best evaluation as well"),
  };
  return section;
}

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
