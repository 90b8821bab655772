// The keys of `train`, `evaluate` and `checkpoint`.
// run/session.cpp asks for the limits of a run, its evaluations and checkpoints;
// step/trainer.cpp for what happens within a step; optim/optimizer.cpp clips.
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

}  // namespace ada::config
