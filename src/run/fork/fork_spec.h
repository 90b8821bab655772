// What a fork of a run changes, and what comes of it.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "io/tensor_names.h"

namespace ada::run {

// What a fork changes, and which results are wanted.
struct ForkSpec {
  config::PrecisionConfig precision;
  std::int64_t steps = 1;
  bool gradients = false;  // the weight gradients of the last step are wanted
  // If not 0: every trained parameter is perturbed by up to half a unit in the last place of its
  // layer's format in `units` (fp32 if it has none) or of the masters' format, whichever is larger,
  // and rounded stochastically to the masters' format, because rounding to nearest could undo the
  // perturbation. The random numbers depend on this value.
  std::uint64_t twin = 0;
  std::map<std::string, NumberFormat> units;
};

// The losses always have ForkSpec::steps entries: where the policy ended the fork early the rest
// are NaN.
struct ForkResult {
  std::vector<double> losses;                 // of each step; what is not finite stays so
  std::vector<std::string> layers;            // of the parameters; where gradients are wanted
  std::vector<std::vector<float>> gradients;  // unscaled, in the order of `layers`
  // Why the fork did not train, with the first tensor that was not finite, as the end of a sentence
  // that begins with "it": losses are not finite, every step was skipped, wanted gradients are not
  // finite, or the policy ended the run. Empty: it trained.
  std::string trouble;
};

// What one matmul of a layer takes, and in which format: the one that it is rounded to, or that it
// is stored in.
struct ForkOperand {
  AnyFormat format = kFp32;
  std::int64_t values = 0;  // of one image for x and dy, of the layer for w
};
// A layer with its formats.
struct ForkLayer {
  std::string name;
  bool trained = false;     // it has trained parameters itself
  bool has_weight = false;  // its matmuls take operands (precision.operands)
  bool rounds = false;      // a precision.layers entry for this layer only can round less
  // The format in which its weights are multiplied; if that is fp32, or it multiplies no weights,
  // the format in which its output is stored.
  NumberFormat unit = kFp32;
  NumberFormat narrowest = kFp32;  // of all its roundings, the format with the fewest bits
  NumberFormat activations = kFp32, weights = kFp32, gradients = kFp32;  // storage formats
  std::array<ForkOperand, kOperands> operands = {};  // by Operand; no values without has_weight
};

}  // namespace ada::run
