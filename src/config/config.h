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
#include "config/transformer.h"
#include "data/catalog.h"
#include "data/settings.h"
#include "error.h"
#include "io/task.h"
#include "io/tensor_names.h"
#include "layers/layer_keys.h"
#include "number/blocks/block_format.h"
#include "number/number_format.h"
#include "number/table_grid.h"
#include "optim/schedule.h"
#include "scaling/policies/policies.h"
#include "scaling/rules/accumulator.h"
#include "scaling/rules/sum_scale.h"
#include "scaling/rules/tensor_scale.h"

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

// The key `data.normalize`: the means subtracted from pixels / 255, and the deviations they are
// divided by. kStandard uses those of the data set's row in the catalog, or measures them.
struct NormalizeConfig {
  enum class Kind { kStandard, kNone, kCustom } kind = Kind::kStandard;
  std::vector<double> mean, std;  // one per channel, kCustom only
};
// Two images of a batch as one, with the labels of both.
struct MixConfig {
  double alpha = 0;  // the share of the first image is drawn from Beta(alpha, alpha); 0: never
  double p = 1;      // share of the batches; where mixup and cutmix both are on: 1/2 each
};
// Random changes of training images that are available for every image data set. Those that need
// pictures of several sizes (resized crops, color jitter, the changes of SSD) are in
// DataConfig::changes.
struct AugmentConfig {
  // The sides get `pad` black pixels before the crop is cut out of the larger image.
  int pad = 0;
  bool random_crop = false;
  bool horizontal_flip = false;
  MixConfig mixup, cutmix;
};
// The key `data.limit`: a smaller data set for a trial run. It counts sequences where data are
// tokens.
struct LimitConfig {
  std::int64_t train = 0, test = 0;  // first N images; 0: all
};
// What becomes of an image whose picture, label image or annotation cannot be used: the run ends
// with an error, or the image is left out, counted and named.
enum class BrokenImages { kFail, kSkip };
// The names of a data set's splits, which are the names of its folders or lists. Only camvid and
// voc read them.
struct SplitsConfig {
  std::string train, test, validation;  // empty: the data set's own
};
// The section `data`: which data set, where its files are, and how samples become batches. Several
// members belong to some data sets only; the table in section_data.cpp refuses their keys
// elsewhere, so the others keep defaults that nobody reads. run/assemble/run_data.cpp makes a
// loader of it.
struct DataConfig {
  std::string dataset = "synthetic";  // one of data::Catalog; a required key
  std::string path;
  std::vector<std::string> more_paths;   // further folders of `path`
  std::vector<std::string> class_names;  // empty: the data set's own
  std::optional<int> ignored_label;      // -1: none; unset: the data set's own
  data::LabelValues label_values;        // none: a label is the number of its class
  data::PictureRules pictures;           // the keys exif and sixteen_bit
  data::ArrayLayout layout = data::ArrayLayout::kAuto;
  SplitsConfig splits;
  // Keys of data sets of tokens.
  std::string tokens = "bytes";                      // text: what its tokens are
  data::TokenType element = data::TokenType::kAuto;  // tokens: of a file's numbers
  int vocabulary = 0;                                // tokens, tensors; 0: as the files have
  int context = 0;                                   // tokens of a window; required
  // A batch is what one weight update sees, over all processes and all parts of train.accumulate.
  int batch_size = 128;
  // Nothing: kEvaluationBatch, of long sequences fewer (run::Completed).
  std::optional<int> evaluate_batch_size;
  static constexpr int kEvaluationBatch = 256;
  int evaluation_batch() const { return evaluate_batch_size.value_or(kEvaluationBatch); }
  bool shuffle = true;
  bool drop_last = true;
  NormalizeConfig normalize;
  AugmentConfig augment;
  data::ImageChanges changes;  // resize and center_crop; the others are keys of `augment`
  // Threads that make batches ahead; 0: the training thread makes them. Unset: the default depends
  // on how costly the data set's images are to decode.
  std::optional<int> workers;
  BrokenImages on_broken = BrokenImages::kFail;
  LimitConfig limit;
  // Training samples that are held back as the split `validation`: the last N of them, or a share
  // of each class that the seed draws. At most one of the two members is not zero.
  std::int64_t validation = 0;
  double validation_share = 0;  // instead of `validation`, which is the same key
  data::SyntheticSpec synthetic;
  Location where;  // of `data:`
};

// One entry of `model.layers`, or what a zoo model expands to. A key that its kind does not know is
// an error of the reader.
struct LayerConfig : layers::LayerKeys {
  std::string name;
  std::string kind;                 // one of graph::LayerKinds
  std::vector<std::string> inputs;  // empty: the layer before
  bool is_per_class = false;        // channels or features say `classes`: model.classes of them
  double start_factor = 1;          // of the deviation that model.init.scheme gives its weight
  std::string parameter_prefix;     // of its parameters' names; empty: its name and a dot (no key)
  Location where;
};

// Distributions by which weights start. The first six scale with the fan of the weight (He et al.
// 2015, Glorot and Bengio 2010, LeCun et al. 1998); the others take their numbers from InitRule.
enum class InitScheme {
  kHeNormal,
  kHeUniform,
  kXavierNormal,
  kXavierUniform,
  kLecunNormal,
  kLecunUniform,
  kNormal,
  kUniform,
  kConstant
};
// The distribution of a parameter's first values.
struct InitRule {
  // Only the members that belong to the scheme are read. The reader requires `std`, `bound` and
  // `value` for their schemes; transformers of the zoo give `std` a start (StartBy).
  InitScheme scheme = InitScheme::kHeNormal;
  enum class Fan { kIn, kOut } fan = Fan::kIn;  // he, lecun
  std::optional<double> gain;                   // he: sqrt(2), xavier, lecun: 1
  double std = 0, bound = 0, value = 0;         // normal; uniform; constant
};
// One entry of `model.init.parameters`.
struct InitParametersConfig : InitRule {
  std::string match;
  Location where;
};
// The section `model.init`. Parameters start by the scheme, then by the last matching entry of
// `parameters`, and at the end tensors of the file `weights` replace what these gave. Vectors
// (biases, gamma, beta) start at 0 or 1 by their name, whatever the scheme is, unless an entry
// matches them (graph/network/parameters.cpp).
struct InitConfig : InitRule {
  std::vector<InitParametersConfig> parameters;  // the last match wins, as a whole
  bool zero_gamma = false;
  std::string weights;       // safetensors file; overrides the scheme for every tensor found in it
  bool require_all = false;  // a tensor that the file does not have is an error
  bool ignore_unknown = false;  // tensors of the file that the network does not have are left out
  std::vector<std::string>
      skip;  // globs on layers or tensors that start by the scheme all the same
  Location where;
};
// The section `model`: a network of the zoo with its few options, or a list of layers.
// graph/network/zoo.cpp expands a name into the same LayerConfig entries that a list has, so
// everything after it sees layers only. A file that `model.file` names is already merged in.
struct ModelConfig {
  std::string zoo;                       // empty: `layers`
  int classes = 10;                      // 0: as many as the data's files say
  std::string shortcut = "A";            // resnet: A, B or reference
  std::vector<int> hidden = {512, 512};  // mlp
  double dropout = 0;                    // 0: none
  bool plain = false;                    // vgg: without batch norm
  double width = 1;                      // segnet, ssd: factor of the channels
  bool batch_norm = false;               // ssd: after every convolution but those of the heads
  bool cast = false;                     // segnet, ssd: a `scale` layer before the loss
  TransformerConfig transformer;         // gpt2, llama, vit
  std::vector<LayerConfig> layers;       // `repeat` already expanded
  std::vector<std::string> outputs;      // layers that the loss is of; empty: the last one
  std::vector<Location> outputs_where;   // of each
  InitConfig init;
  Location where;
};

// Formats by role; unset: as set one level up (for a layer's entry `precision`, then `format`). The
// four roles are a tensor's roles in its layer: activations are inputs and outputs, weights the
// rounded copies that are multiplied, gradients dx and dy, and weight_gradients dw.
struct RoleFormatsConfig {
  std::optional<NumberFormat> activations, weights, gradients, weight_gradients;
};
// What attention multiplies its probabilities, or gradients of scores, as.
enum class WithinAttention { kRounded, kFp32 };
// kNearest is the format's own: ties to even, in HiFloat8 away from zero. kStochastic rounds up
// with a probability that is the share of the gap, so that the mean is right; evaluations round to
// nearest all the same. The others are those of IEEE P3109, kStochasticA and on by some random
// bits.
enum class RoundingKind {
  kNearest,
  kStochastic,
  kNearestEven,
  kNearestAway,
  kTowardZero,
  kTowardPositive,
  kTowardNegative,
  kTowardOdd,
  kStochasticA,
  kStochasticB,
  kStochasticC
};
inline bool DrawsSomeBits(RoundingKind kind) { return kind >= RoundingKind::kStochasticA; }
inline bool IsStochastic(RoundingKind kind) {
  return kind == RoundingKind::kStochastic || DrawsSomeBits(kind);
}
// What happens to a value beyond the largest one of its format: what the format itself specifies
// (inf, NaN or the largest value), or saturation to the largest value, kSaturateFinite of finite
// values alone. kDefault saturates only tensors with a per-tensor scale.
enum class OverflowKind { kDefault, kFormat, kSaturate, kSaturateFinite };
// By what a format is rounded beside its own saturation (number/table_grid.h).
inline TableModes ModesOf(RoundingKind rounding, OverflowKind overflow, int random_bits) {
  TableModes modes;
  if (rounding >= RoundingKind::kNearestEven)
    modes.rounding = static_cast<TableRounding>(static_cast<int>(rounding) - 1);
  if (overflow == OverflowKind::kSaturateFinite) modes.overflow = TableOverflow::kSaturateFinite;
  modes.random_bits = random_bits;
  return modes;
}
// `precision.tensor_scaling` and that of operands: the rule by which the scale of one tensor
// follows from magnitudes (scaling/rules/tensor_scale.h), and whether there is one.
struct TensorScalingConfig : scaling::TensorScaleRule {
  // Only kDelayed is for tensors that are stored; kRow is one scale for each row along the sum,
  // kAdaptive for the scale that a tensor of blocks has beside theirs.
  // kPredicted is for weights; other operands then have kCurrent.
  enum class Kind { kNone, kCurrent, kDelayed, kRow, kStatic, kAdaptive, kPredicted };
  Kind kind = Kind::kNone;
  scaling::BlockRangeRule adaptive;
  std::int64_t interval = 500;  // of kPredicted: steps from one measurement to the next
  struct StaticScales {
    double x = 1, w = 1, dy = 1;  // by which values are multiplied before their rounding
    double q = 1, k = 1, v = 1, p = 1, ds = 1;  // the same in attention
  } values;
  // The keys that were written, where `kind` was not: a recipe gives the others.
  std::vector<std::string> given;
};
// How matmuls read one operand: rounded once more, or (`format` unset) as it is stored.
struct OperandConfig {
  std::optional<AnyFormat> format;
  RoundingKind rounding = RoundingKind::kNearest;
  int random_bits = 8;      // of stochastic_a, _b and _c
  bool as_forward = false;  // of dx.w and dw.x: the very values that the forward product took
  // Unset: as OperandsConfig::tensor_scaling and PrecisionConfig::overflow say. All but the kind of
  // a scale is as the former says.
  std::optional<TensorScalingConfig::Kind> tensor_scaling = {};
  std::optional<OverflowKind> overflow = {};
};
// A Hadamard transform of both operands of products (backend/hadamard.h).
struct HadamardConfig {
  std::vector<std::string> products = {"dw"};
  int size = 16;
  enum class Signs { kFixed, kRandom, kListed } signs = Signs::kFixed;
  std::vector<int> listed = {};  // `size` times 1 or -1
};
// How many layers with weights, at the start and at the end of the network, have operands that are
// used as they are stored.
struct SparedConfig {
  int first = 0, last = 0;
};
// How the sums of one product are made: as an accumulator makes them, or (`rule` unset) in fp32.
struct AccumulateConfig {
  std::optional<scaling::Accumulator> rule;
};
// `precision.accumulate`; unset: as set one level up, by default in fp32.
struct AccumulatesConfig {
  std::array<std::optional<AccumulateConfig>, scaling::kLayerMatmuls> by_matmul;  // by LayerMatmul
  // Those of the Newton-Schulz iteration of muon; it and `spared` stand in `precision` alone.
  std::optional<AccumulateConfig> newton_schulz;
  std::optional<SparedConfig> spared;  // unset: as of operands
  bool given() const;
};
// `precision.operands`; unset: as set one level up, by default as stored.
struct OperandsConfig {
  std::array<std::optional<OperandConfig>, kOperands> by_operand;  // by Operand
  // By AttentionTensor, in both of its products.
  std::array<std::optional<OperandConfig>, kAttentionTensors> attention;
  std::optional<TensorScalingConfig> tensor_scaling;
  std::optional<HadamardConfig> hadamard;
  std::optional<SparedConfig> spared;  // only in `precision`
  bool given() const;
};
// Where `precision.operands` start from.
enum class PrecisionRecipe {
  kNone,
  kTeFp8Current,
  kTeFp8Delayed,
  kTeMxfp8,
  kTorchaoMxfp8,
  kTeNvfp4,
  kNvfp4Pretraining,
  kDeepSeekV3,
  kMxfp4Hadamard,
  kTorchaoFp8Tensorwise,
  kTorchaoFp8Rowwise,
  kTorchaoFp8RowwiseGwHp,
  kTorchaoInt8,
  kTorchaoNvfp4,
  kModdedNanogptHead,
};
// `precision.layers`: last match wins, key by key; a role's key beats `format` of the same entry.
struct LayerPrecisionConfig : RoleFormatsConfig {
  std::string match;
  std::optional<NumberFormat> format;  // of activations, weights and gradients
  std::optional<WithinAttention> probabilities, score_gradients;
  std::optional<PrecisionRecipe> recipe;  // already filled into `operands`
  OperandsConfig operands;
  AccumulatesConfig accumulate;
  Location where;
};
// How a tensor of the update is kept between steps.
struct StorageFormatConfig {
  NumberFormat format = kFp32;
  RoundingKind rounding = RoundingKind::kNearest;
};
// The section `precision.accumulated_gradients`.
struct AccumulatedGradientsConfig : StorageFormatConfig {
  enum class Scaling { kNone, kFp8Lm } scaling = Scaling::kNone;
  scaling::SumScaleRule rule;
  bool scales() const { return scaling != Scaling::kNone; }
};
// The section `precision.masters`.
struct MastersConfig : StorageFormatConfig {
  backend::UpdateRule::Compensation compensation = backend::UpdateRule::Compensation::kNone;
  std::optional<backend::UpdateRule::Arithmetic> arithmetic;  // unset: ArithmeticOf
};
// The section `precision.optimizer_state`. A layout is another program's way to keep the states; a
// format of one state beats `format`.
struct OptimizerStateConfig : StorageFormatConfig {
  std::string layout;  // empty: none
  std::optional<NumberFormat> exp_avg, exp_avg_sq, momentum;
  backend::StateStorage::Scaling scaling = backend::StateStorage::Scaling::kNone;
  std::int64_t block = 256;
  enum class Map { kLinear, kDynamic } map = Map::kLinear;
  // Whether all states are fp32.
  bool plain() const {
    return format == kFp32 && layout.empty() && !exp_avg && !exp_avg_sq && !momentum;
  }
};
enum class PrecisionPreset { kNone, kAutocast, kAutocastCpu };
// One entry of `precision.schedule`: what is different from a step on; unset: as before.
// PrecisionAt applies the entries in their order, so an entry may rely on what an earlier one set.
struct PrecisionSwitchConfig : RoleFormatsConfig {
  std::int64_t from_step = 0;
  std::optional<NumberFormat> format;
  std::vector<LayerPrecisionConfig> layers;  // follow those before
  std::optional<RoundingKind> rounding;
  std::optional<PrecisionRecipe> recipe;  // then `operands` replace those before as a whole
  OperandsConfig operands;
  AccumulatesConfig accumulate;
  Location where;
};
// The section `precision`. graph/network/precision.h resolves it layer by layer; until then it
// holds what was written, with a recipe's operands already filled in.
struct PrecisionConfig : RoleFormatsConfig {
  // The preset decides formats by the kind of a layer; a recipe decides operands. They are
  // independent.
  PrecisionPreset preset = PrecisionPreset::kNone;
  PrecisionRecipe recipe = PrecisionRecipe::kNone;
  // The roles activations, weights and gradients take this format unless they have one.
  NumberFormat format = kFp32;  // weight_gradients: fp32 unless set
  std::vector<LayerPrecisionConfig> layers;
  RoundingKind rounding = RoundingKind::kNearest;
  int random_bits = 8;  // of stochastic_a, _b and _c
  TensorScalingConfig tensor_scaling;
  OperandsConfig operands;
  AccumulatesConfig accumulate;
  OverflowKind overflow = OverflowKind::kDefault;
  MastersConfig masters;
  OptimizerStateConfig optimizer_state;
  AccumulatedGradientsConfig accumulated_gradients;  // fp32: as ops add them up
  std::vector<PrecisionSwitchConfig> schedule;       // by rising from_step
  // Whether the section, one of its layers or of its switches says how sums are made.
  bool accumulates() const;
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
