// Forks of a run: the same training is continued in memory from one checkpoint (or from its start),
// on the same batches, with other formats or slightly perturbed weights. Nothing is written.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "io/tensor_names.h"
#include "run/assemble/assemble.h"
#include "run/checkpoint/checkpoint.h"
#include "step/attempt/attempt.h"
#include "telemetry/not_finite.h"

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

// --- A fork ---

// The layers that a network for such images (n is ignored) has with this precision, in its order.
// `config`: complete but for its precision.
std::vector<ForkLayer> LayersOf(config::Config config, const Shape& image,
                                const config::PrecisionConfig& precision);

// Writes the weights with which a training starts, each moved as ForkSpec::twin moves those of a
// fork whose layers all have the format `unit`, as a safetensors file for model.init.weights: the
// training that starts from it is a twin of the other. `twin`: not 0.
void WriteTwinStart(const config::Config& config, const Shape& image, std::uint64_t twin,
                    const NumberFormat& unit, const std::string& path);

// Made once by a study command (study/blame, study/assign), which calls Run for each variant; every
// call is independent of the others and leaves the source as it is. It owns the data of the run,
// which are read once.
class ForkSource {
 public:
  // A source at the newest checkpoint in the folder of a run, which may go on and delete it: its
  // files are held open. threads 0: as the run. DataError where the folder holds no checkpoint, and
  // what reading the run's data throws.
  static ForkSource OfRun(const std::string& folder, int threads);
  // A source at the start of a training with this configuration.
  static ForkSource OfConfig(const config::Config& config);

  // With the precision of the step after step(), which all steps of a fork use.
  const config::Config& config() const { return config_; }
  std::int64_t step() const { return from_ ? from_->state.step : 0; }
  // A text that differs where the checkpoint does, or a file of the data (by name, size or time).
  std::string Identity() const;

  // The layers in the order of the network.
  std::vector<ForkLayer> Layers(const config::PrecisionConfig& precision) const;
  // Throws ConfigError where the formats do not suit the network.
  ForkResult Run(const ForkSpec& spec) const;

 private:
  ForkSource(config::Config config, std::optional<ResumePoint> from);

  config::Config config_;
  std::optional<ResumePoint> from_;
  std::string checkpoint_hash_;
  bool switched_ = false;  // precision.schedule: the precision changes after step()
  data::DatasetInfo info_;
  RunData data_;
};

// --- Its parts ---

// Perturbs the masters of a twin (ForkSpec::twin), which must be rounded to their format before.
void MoveWeights(const ForkSpec& spec, graph::Graph& graph, backend::Backend& backend);

// Returns ForkResult::trouble. last: the last step that was made; skips: how many made no update.
std::string TroubleOf(const ForkSpec& spec, const ForkResult& result, const step::StepResult& last,
                      std::int64_t skips, const telemetry::Finiteness& finiteness);

}  // namespace ada::run
