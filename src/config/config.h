// The configuration as typed structs: one field per YAML key, of the same name, with its default. A
// section that another folder takes as it is has that folder's own struct (scaling::Settings,
// optim::Schedule). Reading, checking and writing YAML is load.h's work.
// The structs are plain data without invariants: a member holds its default until a section's table
// (sections/) reads a value into it, and members that depend on others (a policy's bounds, the
// evaluation's batch) stay unset until FillDefaults or the code that uses them resolves them.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/update.h"
#include "config/data_config.h"
#include "config/model_config.h"
#include "config/precision_config.h"
#include "error.h"
#include "io/task.h"
#include "number/blocks/block_format.h"
#include "optim/schedule.h"
#include "scaling/policies/policies.h"
#include "scaling/rules/accumulator.h"

namespace ada::config {

// What computes. kAuto takes a GPU where one works, else the CPU.
enum class DeviceKind { kAuto, kCpu, kCuda };
// Where products of FP8 operands are computed on a GPU: kEmulated multiplies them as values of a
// wider format with fp32 sums, kHardware uses the GPU's 8-bit units, whose sums keep fewer bits.
enum class Fp8Products { kEmulated, kHardware };
// The section `device`: the backend of a run, its threads and, on a GPU, how plans are chosen. A
// resumed run may have another one.
struct DeviceConfig {
  DeviceKind kind = DeviceKind::kAuto;
  int index = 0;    // of `cuda:1`
  int threads = 0;  // 0: one per core
  // Keys of device cuda.
  bool autotune = false, deterministic = true;
  Fp8Products fp8 = Fp8Products::kEmulated;
  bool compare = false;  // with the CPU, op by op
};

// One entry of `optimizer.groups`; a factor that is not set: as an earlier match has it, else 1.
struct ParameterGroupConfig {
  std::string match;  // a glob on parameter names
  std::optional<double> lr_factor, decay_factor;
  Location where;
};

// The word of optimizer.no_decay for all tensors of one axis.
inline constexpr char kVectors[] = "vectors";

// The section `optimizer`: `kind`, momentum and the other parameters of the update. The lr here is
// the start of the schedule: the update rule of a step gets the schedule's learning rate for that
// step, times the factor of the parameter's group.
struct OptimizerConfig : backend::UpdateRule {
  double lr = 0.1;                           // adam, adamw: 1e-3
  std::vector<std::string> no_decay;         // globs on parameter names, or kVectors
  std::vector<Location> no_decay_where;      // of each
  std::vector<ParameterGroupConfig> groups;  // last match wins, key by key
  // muon: globs on the names of the matrices that it updates, and the rule of all else.
  std::vector<std::string> match = {"*"};
  std::vector<double> ns_coefficient_list = {3.4445, -4.7750, 2.0315};
  struct Others : backend::UpdateRule {
    double lr = 1e-3;
    Others() { kind = Kind::kAdamW, weight_decay = 1e-2; }
  } other;
};

// What a step does whose weight gradients are not finite: it is skipped, or the same update is
// tried again with the next batch.
enum class OnOverflow { kPreset, kSkip, kRetry };  // kPreset: what the preset does, else skip
// Whether a skipped step counts as a step of the learning-rate schedule.
enum class ScheduleOnSkip { kAdvance, kHold };
// An average of the weights over the updates, in addition to them; decay 0: none.
struct EmaConfig {
  double decay = 0;        // share of the average that stays
  std::int64_t every = 1;  // updates between two steps of the average
  bool warmup = false;     // decay: at most (1 + n) / (10 + n) in the average's step n
};
// What each labeled pixel counts in the loss, by its class; segmentation only.
struct ClassWeightsConfig {
  enum class Kind { kNone, kMedianFrequency, kGiven } kind = Kind::kNone;
  std::vector<double> values;  // kGiven: one a class
};
// The section `train`: how long a run goes on and how a step becomes an update. A run ends at the
// first limit that it meets, of epochs, steps and minutes.
struct TrainConfig {
  int epochs = 1;  // 0: as many as max_steps takes
  // Limits of 0 mean no limit; `accumulate` is the parts in which a batch is computed, and a
  // clip_norm of 0 clips nothing.
  std::int64_t max_steps = 0;
  double max_minutes = 0;
  int accumulate = 1;
  double clip_norm = 0;
  OnOverflow on_overflow = OnOverflow::kPreset;
  std::int64_t max_retries = 100;  // retry: attempts after the first, then the step is given up
  ScheduleOnSkip schedule_on_skip = ScheduleOnSkip::kAdvance;
  double label_smoothing = 0;
  ClassWeightsConfig class_weights;
  std::int64_t stop_after_skips = 0;  // this many skipped steps in a row end the run
  EmaConfig ema;
};
// Which weights an evaluation takes in a run that keeps an average of them (train.ema).
enum class EvaluatedWeights { kEma, kTrained, kBoth };
// Where an evaluation takes the mean and variance of batch norms from.
enum class BatchNormStatistics {
  kRunning,     // the running averages of training
  kRecomputed,  // the training images, by the weights that are evaluated
  kReference,   // the mean of the running averages after each of their batches, as ChainerCV
};
// The criterion for the best evaluation.
enum class BestMetric {
  kTask,  // top-1 accuracy; mean IoU; mean average precision; language: the loss
  kLoss,
};
// The section `evaluate`: when a run is evaluated, with which weights and statistics, and which
// evaluation counts as the best.
struct EvaluateConfig {
  // An evaluation follows so many epochs; 0: the only one is at the end of the run.
  int every_epochs = 1;
  BestMetric metric = BestMetric::kTask;
  EvaluatedWeights weights = EvaluatedWeights::kBoth;              // where there is an average
  BatchNormStatistics batch_norm = BatchNormStatistics::kRunning;  // recompute_batch_norm
};
// Default boxes that are not those of a zoo network: one entry a feature map, of `sizes` one more.
struct DefaultBoxesConfig {
  std::string preset;  // ssd300, ssd512; empty: as set by the members below, or by the zoo
  std::vector<int> grids;
  std::vector<double> steps, sizes;  // pixels of the network's input
  std::vector<std::vector<double>> aspect_ratios;
};
// The section `detection`, for task detection only: default boxes and their coder as in SSD (Liu et
// al. 2016), the mining of hard negatives in the loss, and non-maximum suppression of what is
// found.
struct DetectionConfig {
  DefaultBoxesConfig boxes;
  std::vector<double> variances = {0.1, 0.2};  // of centers, of sizes
  double negatives = 3;  // boxes of background in the loss for each with an object
  double score = 0.01;   // detections below it are dropped
  double nms = 0.45;     // overlap from which the less likely of two boxes is dropped
  int candidates = 0;    // boxes of a class that enter this, the likeliest; 0: all
  int most = 0;          // detections of an image that are kept; 0: all
  double draw = 0.6;     // score from which a box is drawn
  Location where;
};
// One entry of log.what_if: another choice, judged from the histograms of a step; of a block-scaled
// format from the operands of products themselves.
struct WhatIfConfig {
  std::string name;                 // of the scenario in what_if.csv; empty: made of the rest
  std::optional<AnyFormat> format;  // unset: each tensor's own
  std::optional<double> scale;      // that every tensor would carry; unset: its own
  std::optional<scaling::Settings> scaling;        // a policy instead of a scale
  std::optional<scaling::Accumulator> accumulate;  // that every product's sums would have
  Location where;

  // Whether it is judged from histograms: neither blocks nor sums are.
  bool of_histograms() const { return block_format() == nullptr && !accumulate; }
  const BlockFormat* block_format() const {
    return format ? std::get_if<BlockFormat>(&*format) : nullptr;
  }
};
// The event by which a dump of the tensors around it is written.
enum class DumpOn { kNever, kSkip, kAlert };
// The section `log`: which files a run writes about itself and how often. None of it changes
// weights, so a resumed run may have other values.
struct LogConfig {
  // The accumulators of what_if, and its block-scaled formats, in its order.
  std::vector<scaling::Accumulator> judged_sums() const;
  std::vector<BlockFormat> judged_formats() const;
  // Steps between logged rows, of which the first step has one; 0: no rows.
  std::int64_t every = 100;
  std::vector<std::string> statistics = {"dx", "dy", "dw"};  // LogSection has all words
  // Whether they were given; FillDefaults adds AddedStatistics to those that were not.
  bool statistics_given = false;
  // Steps between probes, histograms and dumps; 0: never. Such a step is a logged one. Histograms
  // unset: FillDefaults chooses.
  std::int64_t probe_every = 0, dump_every = 0;
  std::optional<std::int64_t> histogram_every;
  std::vector<std::string> dump = {"*"};  // globs on layer names
  DumpOn dump_on = DumpOn::kNever;        // the first of these events in a run
  std::vector<Location> dump_where;       // of each; empty: the default
  std::vector<WhatIfConfig> what_if;      // needs histogram_every
  double alert_underflow_pct = 50;        // of underflow_pct_nonzero; 0: no alerts
  bool tensorboard = false;

  // Whether a scenario of what_if asks for a block-scaled format.
  bool has_block_scenarios() const {
    for (const WhatIfConfig& entry : what_if)
      if (entry.block_format() != nullptr) return true;
    return false;
  }
};
// The section `checkpoint`: the last step has one whatever these say. `keep` counts the newest
// ones; that of the best evaluation is kept in addition.
struct CheckpointConfig {
  int every_epochs = 1;
  std::int64_t every_steps = 0;
  int keep = 2;
  bool best = true;
};

// How gradients travel between processes.
// A narrower format halves what travels.
enum class GradientTransport { kFp32, kBf16, kFp16 };
// In which order and format a sum of them is made. The format is unset: that of `gradients` in a
// ring, else fp32.
struct ReductionConfig {
  enum class Order { kRanks, kRing } order = Order::kRanks;
  std::optional<GradientTransport> format;
  friend bool operator==(const ReductionConfig&, const ReductionConfig&) = default;
};
// The values from which the rules of layers decide: those of all processes, or each process's own.
enum class SharedStatistics { kGlobal, kLocal };
// Several processes that train one network, each with its part of every batch.
struct ParallelConfig {
  int ranks = 0;  // processes; 0: as many as were started
  GradientTransport gradients = GradientTransport::kFp32;
  ReductionConfig reduction;
  SharedStatistics statistics = SharedStatistics::kGlobal;
  bool sync_batch_norm = false;
  double bucket_mb = 4;  // of gradients that travel together, at most
  double timeout_seconds = 300;
  friend bool operator==(const ParallelConfig&, const ParallelConfig&) = default;
};

// A whole configuration, as Load gives it: checked, with paths expanded, but with members of
// policies and logs that are still unset until FillDefaults. Other folders take single sections of
// it; only train/, study/ and cli/ pass it on as a whole.
struct Config {
  int schema_version = 1;  // of the file: what its keys mean
  std::string name;        // default: the file's name
  std::uint64_t seed = 1;
  std::string output;  // default: runs/<name>
  Task task = Task::kClassification;
  DeviceConfig device;
  DataConfig data;
  ModelConfig model;
  PrecisionConfig precision;
  scaling::Settings scaling;
  OptimizerConfig optimizer;
  optim::Schedule schedule;
  TrainConfig train;
  EvaluateConfig evaluate;
  DetectionConfig detection;
  LogConfig log;
  CheckpointConfig checkpoint;
  ParallelConfig parallel;
  // These two are for messages only (KeyText) and are not part of ToYaml.
  std::string file;  // where it was read
  // Where its keys were written, by their paths; those within lists are not among them.
  std::map<std::string, Location> places;
};

}  // namespace ada::config
