// The table of layer kinds. A row says all that the program asks of a kind: which keys it knows,
// the shape it gives, its parameters, what it rounds, what it keeps for the backward pass, and the
// spec of which a backend makes its op. No other file decides anything by a kind's name.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "graph/layers/layer_keys.h"
#include "graph/layers/op_parts.h"

namespace ada::graph {

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
  std::optional<Pool> pool;   // the one that `pool` names
  std::optional<Shape> tied;  // of the weight of the layer that `weight_of` names
  Shape output;
  double mflop = 0;  // of a product: forward, a multiply-add counted as 2
  const Shape& input() const { return inputs[0].shape; }
};

// A trained tensor or a running statistic of a layer.
struct ParameterSpec {
  std::string name;                // after the layer's: "weight"; empty: it is the layer's
  std::vector<std::int64_t> dims;  // PyTorch's
  Shape shape;                     // in memory, in the order of dims
  bool trained = true;
  std::optional<double> start = {};  // its first value; nothing: by its name and the scheme
};

// Over how many products one value of dx sums: exactly, and as the authors' program counts them.
struct Fans {
  double reference = 1, exact = 1;
};

// What is wrong with the keys of a layer; an empty message: nothing.
// Found by LayerKind::check while the configuration is read; the reader of YAML adds file and line.
struct KeyProblem {
  const char* key = "";
  std::string message = {};
};

// A gradient within an op that has a scale decision of its own, named LAYER.NAME in the logs.
struct OwnDecision {
  const char* name;
  double (*fan)(const LayerKeys& keys, const LayerShapes& shapes);
};

// Whether the positions of an output are those of a sequence.
// kNone: the output has one position, or places that are no tokens.
enum class Positions { kAsInput, kSequence, kNone };

// The part that a kind can play in a chain which one op computes (plan/plan.h).
enum class ChainPart { kNone, kNorm, kSum, kMask };

// One row. A kind without any flag rounds what it gives and its dx, computes dx from dy alone, and
// passes S on. Pointers to functions may be null where the text says so; `name`, `infer` and `spec`
// never are.
struct LayerKind {
  const char* name;

  // --- Keys ---
  std::vector<std::string> keys = {};      // those of LayerKeys that it knows
  std::vector<std::string> required = {};  // and those of them that have no default
  bool joins = false;                      // it has several inputs; false: it has one
  int least_inputs = 2;                    // where it joins
  bool follows = false;                    // where it joins: without `inputs`, the layer before
  bool stride_is_kernel = false;           // where no stride is given
  double eps = 1e-5, value = 1e-6;         // where none is given
  int size = 1;                            // the same
  double alpha = 1e-4, beta = 0.75;        // the same
  // What `mode` may be; the first one where none is given.
  std::vector<std::string> modes = {};
  // Finds what is wrong across keys, whatever the input's shape is. Null: nothing can be.
  KeyProblem (*check)(const LayerKeys& keys) = nullptr;

  // --- Shapes ---
  // Fills the output and the cost, and keys that follow from the input's shape. Throws ConfigError,
  // naming both shapes where shapes do not fit.
  void (*infer)(LayerKeys& keys, LayerShapes& shapes) = nullptr;
  Positions positions = Positions::kAsInput;
  bool reads_tokens = false;  // its input is the network's, whole numbers
  // Null: it has none.
  std::vector<ParameterSpec> (*parameters)(const LayerKeys& keys,
                                           const LayerShapes& shapes) = nullptr;

  // --- Rounding and scales (src/README.md, "What is rounded") ---
  bool constant = false;        // none of its parameters is trained
  bool has_weight = false;      // the first parameter is multiplied, as a rounded copy
  bool gathers_weight = false;  // the first parameter is read row by row, and may be tied
  bool chooses_scale = false;   // its dx gets a per-tensor scale, by the rule of a policy
  // Its gradients within, and those that it hands on, have a decision each, in the order in which
  // they are taken; they have the format of the layer's gradients.
  std::vector<OwnDecision> decisions = {};
  // The same where the policy wants it to (GraphSpec::scales_batch_norms); what the rule looks at
  // its op finds itself.
  bool may_choose_scale = false;
  bool rounds_output = true;  // false: every value of the output is one of the input's, or zero
  bool (*rounds_output_by)(const LayerKeys& keys) = nullptr;  // decides instead, where keys do
  // Whether its dx is rounded. Null: where the output is, and there is only one input.
  bool (*rounds_gradient)(const LayerKeys& keys) = nullptr;
  Fans (*fans)(const LayerKeys& keys) = nullptr;  // null: one each
  // It may leave the largest magnitudes of y and dx to the ops that read them next, and it takes
  // those of its x and dy (backend/decisions.h).
  bool defers_amax = false, takes_deferred_amax = false;
  bool autocast_fp32 = false;      // torch.autocast computes it in fp32 (network/tensor_storage.h)
  bool autocast_cpu_fp32 = false;  // the same of its lists for CPUs
  bool autocast_low = false;       // and it in fp16 or bf16, whatever its inputs are

  // --- Backward pass ---
  bool keeps_input = false, keeps_output = false;  // what it reads of the forward pass
  bool gives_positions = false;                    // it can say where its values lay in its input
  bool reads_positions = false;    // it takes these from the layer that `pool` names
  bool dx_in_place = false;        // it reads dy value by value, so that dx may lie where dy does
  bool hands_gradient_on = false;  // no op: the gradient of every input is the output's, as it is

  // --- Fusion ---
  ChainPart chain = ChainPart::kNone;
  bool sums_channels = false;  // its epilogue can take the sums that a batch norm after it needs

  // Makes the spec of the op, after the graph has planned and allocated. Called anew for each plan.
  backend::OpSpec (*spec)(const OpParts& parts) = nullptr;

  bool RoundsOutput(const LayerKeys& given) const {
    return rounds_output_by != nullptr ? rounds_output_by(given) : rounds_output;
  }
  bool is_trained() const { return parameters != nullptr && !constant; }
  // Whether the graph asks the policy for a rule of its dx.
  bool Chooses(bool scales_batch_norms) const {
    return chooses_scale || (may_choose_scale && scales_batch_norms);
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

// --- For rows. ---

// The rule of a kind whose output has the shape of its input.
void KeepShape(LayerKeys& keys, LayerShapes& shapes);
// Throws ConfigError with `message` where `condition` does not hold.
void Require(bool condition, const std::string& message);
// Throws ConfigError where a tensor, an output for one image, would have more than 2^40 values.
void RequireSize(const Shape& shape, const std::string& tensor);

}  // namespace ada::graph
