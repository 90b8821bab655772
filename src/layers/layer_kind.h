// The table of layer kinds. A row holds all that the program needs to know of a kind: its keys, its
// output shape, its parameters, what it rounds, what it keeps for the backward pass, and the spec
// from which a backend makes its op. No other file depends on a kind's name.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layers/layer_keys.h"
#include "layers/op_parts.h"
#include "number/tensor.h"

namespace ada::layers {

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
  // next, and whether it computes that of its x and dy for others (backend/decisions.h).
  bool defers_amax = false, takes_deferred_amax = false;
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
  backend::OpSpec (*spec)(const OpParts& parts) = nullptr;

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

}  // namespace ada::layers
