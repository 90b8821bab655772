// The table of layer kinds. A row holds all that the program needs to know of a kind: its keys, its
// output shape, its parameters, what it rounds, what it keeps for the backward pass, and the spec
// from which a backend makes its op. No other file depends on a kind's name.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/specs.h"
#include "layers/layer_keys.h"
#include "number/tensor.h"

namespace ada::layers {

// How a tensor is rounded, and where that is counted.
struct RoundedTo {
  NumberFormat format = kFp32;
  backend::RoundingStyle style;
  TensorStats* stats = nullptr;
};

// Filled by OpMaker for one op, read by `spec` of its kind, and then discarded: specs copy what
// they need. Pointers are backend addresses in the graph's arenas.
struct OpArguments {
  struct Parameter {
    Tensor value, gradient;  // gradient: empty for a running statistic, and without training
  };
  std::string layer;
  LayerKeys keys;
  std::vector<Tensor> x;  // the inputs; no data if recomputed
  Tensor y;               // the output, of the whole chain where layers are fused
  backend::Gradient dy;
  std::vector<backend::Gradient> dx;  // one per input, empty if not computed; or none at all
  std::vector<Parameter> parameters;  // in the order of the kind's row
  RoundedTo rounded_y;                // for kinds that round their output
  scaling::LayerScaler* scaler =
      nullptr;  // null where dx is not computed, or no alpha is chosen for it

  // The per-tensor scales that the inputs carry, of kinds whose matmuls may add codes.
  std::array<const scaling::TensorScaler*, 3> x_per_tensor_scales{};

  // Parts of attention.
  RoundedTo p, ds;
  bool rounds_p = true, rounds_ds = true;
  backend::AttentionRoundings attention_operands;
  std::vector<backend::JudgedOperands> judged_operands;
  float* ds_scale = nullptr;
  std::array<scaling::LayerScaler*, 4> scalers{};  // by AttentionSpec::Decision

  // Parts of kinds with a weight.
  bool adds_dw = false;  // another layer's op has already written dw of the same weight
  RoundedTo w, dw;
  backend::OperandRoundings operands;
  backend::SumsOfMatmuls sums;  // of attention too
  backend::ChannelMoments y_moments;
  bool y_amax_deferred = false;

  // Parts of a batch norm, with what is fused after it.
  backend::ChannelMoments x_moments;
  RoundedTo measured_x;  // whose largest magnitude the op must compute; without stats: none
  Tensor addend;
  RoundedTo sum;
  bool relu = false;

  // Parts of a pool that records the positions of its maxima, and of the layer that reads them;
  // pooled: the pool's output.
  std::uint16_t* positions = nullptr;
  Shape pooled;

  backend::RecomputedNorm recomputed;  // for a batch norm and for the layer that consumes it
};

// Makes a spec and fills in the members that most specs have, by their names; the kind fills in the
// rest.
template <class Spec>
Spec SpecOf(const OpArguments& op) {
  Spec spec;
  spec.layer = op.layer;
  // Specs with one input have a Tensor named x, those with several inputs a vector.
  if constexpr (std::is_same_v<decltype(spec.x), Tensor>) {
    spec.x = op.x[0];
  } else {
    spec.x = op.x;
  }
  if constexpr (requires { spec.y; }) spec.y = op.y;
  if constexpr (requires { spec.dy; }) {
    spec.dy = op.dy;
    if constexpr (!std::is_same_v<decltype(spec.dx), backend::Gradient>) {
      spec.dx = op.dx;
    } else if (!op.dx.empty()) {
      spec.dx = op.dx[0];
    }
  }
  if constexpr (requires { spec.y_stats, spec.y_style; }) {
    spec.y_stats = op.rounded_y.stats;
    spec.y_style = op.rounded_y.style;
  }
  if constexpr (requires { spec.scaler; }) spec.scaler = op.scaler;
  if constexpr (requires { spec.sums; }) spec.sums = op.sums;
  if constexpr (requires { spec.kernel; }) spec.kernel = op.keys.kernel;
  if constexpr (requires { spec.stride; }) spec.stride = op.keys.stride;
  if constexpr (requires { spec.padding; }) spec.padding = op.keys.padding;
  return spec;
}

// Makes the spec of kinds that need no more than that.
template <class Spec>
backend::OpSpec PlainSpec(const OpArguments& op) {
  return SpecOf<Spec>(op);
}

// The same for kinds with one weight.
template <class Spec>
backend::OpSpec WeightedSpec(const OpArguments& op) {
  auto spec = SpecOf<Spec>(op);
  spec.w = op.parameters[0].value;
  spec.dw = op.parameters[0].gradient;
  return spec;
}

// The shapes of a layer, of one image (n is 1).
struct LayerShapes {
  struct Input {
    std::string name;  // of the layer that makes it, for messages
    Shape shape;
    bool sequence = false;  // its positions are tokens
  };
  struct Pool {
    LayerKeys keys;
    Shape input, output;
  };
  std::vector<Input> inputs;
  std::optional<Pool> pool;   // the layer named by `pool`
  std::optional<Shape> tied;  // weight of the layer named by `weight_of`
  Shape output;
  double mflop = 0;  // of a matmul: forward, one multiply-add counted as 2
  const Shape& input() const { return inputs[0].shape; }
};

// A trained tensor or a running statistic of a layer.
struct ParameterSpec {
  std::string name;                // appended to the layer's name: "weight"; empty: none
  std::vector<std::int64_t> dims;  // PyTorch's
  Shape shape;                     // in memory, in the order of dims
  bool trained = true;
  std::optional<double> start = {};  // initial value; nullopt: by its name and the scheme
};

// The number of terms in the sum of one value of dx: exactly, and as the authors' program counts.
struct Fans {
  double reference = 1, exact = 1;
};

// What is wrong with the keys of a layer; an empty message: nothing is.
// Found by LayerKind::check while the configuration is read; the reader of YAML adds file and line.
struct KeyProblem {
  const char* key = "";
  std::string message = {};
};

// A gradient inside an op with a scale decision of its own, named LAYER.NAME in the logs.
struct OwnDecision {
  const char* name;
  double (*fan)(const LayerKeys& keys, const LayerShapes& shapes);
};

// Whether the positions of an output are those of a sequence. kNone: the output has one position,
// or positions that are not tokens.
enum class Positions { kAsInput, kSequence, kNone };

// The part that a kind can play in a chain which one op computes (plan/plan.h).
enum class ChainPart { kNone, kNorm, kSum, kMask };

// One row. With all flags at their defaults a kind rounds its output and its dx, computes dx from
// dy only, and passes S on. Function pointers may be null where their comment says so; `name`,
// `infer` and `spec` must be set.
struct LayerKind {
  const char* name;

  // --- Keys ---
  std::vector<std::string> keys = {};      // the keys of LayerKeys that it has
  std::vector<std::string> required = {};  // those of them without a default
  bool joins = false;                      // it has several inputs; false: it has one
  int least_inputs = 2;                    // if it joins
  bool follows = false;                    // if it joins: without `inputs`, reads the layer before
  bool stride_is_kernel = false;           // default of stride
  double eps = 1e-5, value = 1e-6;         // defaults
  int size = 1;                            // likewise
  double alpha = 1e-4, beta = 0.75;        // likewise
  // The possible values of `mode`; the first one is the default.
  std::vector<std::string> modes = {};
  // Checks keys against each other, independently of the input's shape. Null: nothing to check.
  KeyProblem (*check)(const LayerKeys& keys) = nullptr;

  // --- Shapes ---
  // Fills in the output's shape, the cost, and keys that follow from the input's shape. Throws
  // ConfigError, naming both shapes, if shapes do not fit.
  void (*infer)(LayerKeys& keys, LayerShapes& shapes) = nullptr;
  Positions positions = Positions::kAsInput;
  bool reads_tokens = false;  // its input is the network's tokens
  // Null: it has none.
  std::vector<ParameterSpec> (*parameters)(const LayerKeys& keys,
                                           const LayerShapes& shapes) = nullptr;

  // --- Rounding and scales (src/README.md, "What is rounded") ---
  bool constant = false;        // none of its parameters is trained
  bool has_weight = false;      // a rounded copy of the first parameter is multiplied
  bool gathers_weight = false;  // the first parameter is read row by row, and may be tied
  bool chooses_scale = false;   // a policy's rule gives its dx a scale factor alpha
  // Gradients inside it, and those that it passes on, which have a scale decision each, in the
  // order in which they are made; they have the format of the layer's gradients.
  std::vector<OwnDecision> decisions = {};
  // It chooses a scale if the policy wants batch norms to (GraphSpec::scales_batch_norms); the op
  // itself computes the input of its rule.
  bool chooses_scale_with_batch_norms = false;
  bool rounds_output = true;  // false: each output value is an input value or zero
  bool (*rounds_output_by)(const LayerKeys& keys) = nullptr;  // if set, decides this by keys
  // Whether its dx is rounded. Null: it is if the output is rounded and there is only one input.
  bool (*rounds_gradient)(const LayerKeys& keys) = nullptr;
  Fans (*fans)(const LayerKeys& keys) = nullptr;  // null: one each
  // Whether it may leave computing the largest magnitude of y and dx to the ops that read them
  // next, and whether it computes that of its x or dy for others (backend/decisions.h).
  bool defers_amax = false, takes_amax_of_x = false, takes_amax_of_dy = false;
  bool autocast_fp32 = false;      // torch.autocast computes it in fp32 (network/tensor_storage.h)
  bool autocast_cpu_fp32 = false;  // the same in torch's lists for CPUs
  bool autocast_low = false;       // and in fp16 or bf16 whatever its inputs are

  // --- Backward pass ---
  bool keeps_input = false, keeps_output = false;  // forward values that its backward pass reads
  bool gives_positions = false;                    // it can record where its values came from
  bool reads_positions = false;    // it reads those that the layer named by `pool` records
  bool dx_in_place = false;        // it reads dy value by value, so dx may overwrite dy
  bool hands_gradient_on = false;  // no op: the gradient of each input is that of the output

  // --- Fusion ---
  ChainPart chain = ChainPart::kNone;
  bool sums_channels = false;  // its epilogue can compute the sums for a batch norm after it

  // Makes the spec of the op, after the graph has planned and allocated. Called anew for each plan.
  backend::OpSpec (*spec)(const OpArguments& parts) = nullptr;

  bool RoundsOutput(const LayerKeys& given) const {
    return rounds_output_by != nullptr ? rounds_output_by(given) : rounds_output;
  }
  // Whether torch.autocast computes it in fp16 or bf16, its gradients too.
  bool autocasts_low() const { return has_weight || autocast_low; }
  bool is_trained() const { return parameters != nullptr && !constant; }
  // Whether the graph asks the policy for a rule for its dx.
  bool Chooses(bool scales_batch_norms) const {
    return chooses_scale || (chooses_scale_with_batch_norms && scales_batch_norms);
  }
};

// Every kind, in the order in which messages list them.
const std::vector<LayerKind>& LayerKinds();
// Null: there is none of that name.
const LayerKind* FindLayerKind(const std::string& name);

// The rows by family, each in a file of its own.
std::vector<LayerKind> MatmulKinds();
std::vector<LayerKind> NormKinds();
std::vector<LayerKind> ActivationKinds();
std::vector<LayerKind> PoolKinds();
std::vector<LayerKind> JoinKinds();
std::vector<LayerKind> SequenceKinds();
std::vector<LayerKind> OtherKinds();

// --- For rows ---

// The rule of a kind whose output has the shape of its input.
void KeepShape(LayerKeys& keys, LayerShapes& shapes);
// Throws ConfigError with `message` where `condition` does not hold.
void Require(bool condition, const std::string& message);
// Throws ConfigError where a tensor, an output for one image, would have more than 2^40 values.
void RequireSize(const Shape& shape, const std::string& tensor);

// Throws ConfigError where kernel, stride, padding or dilation make no sense.
void CheckWindow(const LayerKeys& keys);

// The shape after sliding the window over `input`: floor((in + 2 padding - effective kernel) /
// stride) + 1, as in PyTorch; `ceil`: rounded up instead, but the last window begins inside the
// input or the padding before it. Throws ConfigError where the window is larger than the padded
// input.
Shape Slide(const LayerKeys& keys, const Shape& input, std::int64_t channels, bool ceil = false);

// The inverse of Slide: the shape over which the window slides to give `input` positions: (in - 1)
// stride - 2 padding + effective kernel + output_padding, as in PyTorch's transposed convolutions.
// Throws ConfigError if padding leaves nothing of it.
Shape SlideBack(const LayerKeys& keys, const Shape& input, std::int64_t channels);

template <typename T>
std::string PairText(const std::array<T, 2>& pair) {
  return std::to_string(pair[0]) + "x" + std::to_string(pair[1]);
}

}  // namespace ada::layers
