// The same weights computed under two precisions: the outputs of both beside each other, sample by
// sample, and what each layer does to them. Nothing is trained or written.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::run {

// ln of the sum of e^logit.
double LogSum(std::span<const float> logits);
// The KL divergence of softmax(b) from softmax(a), in nats; both with the LogSum of their logits.
double Divergence(std::span<const float> a, double log_sum_a, std::span<const float> b,
                  double log_sum_b);

// What the network gives for one sample (an image, or a sequence): [positions, classes] by side. A
// twin is the same side with weights moved by up to half a unit of their layer's format.
struct MismatchSample {
  std::int64_t positions = 1, classes = 0;
  std::array<std::span<const float>, 2> logits, twins;
  std::span<const std::int32_t> targets;  // one a position; below 0: none
};
using MismatchVisitor = std::function<void(const MismatchSample&)>;

// How far a layer's output lies from that of fp32, as a share of its norm, by side. `adds`: with
// exact inputs, so that only its own rounding counts. `total`: in the network of this side.
// `inherits`: sqrt(total^2 - adds^2), what comes with its inputs. `alone`: of the network where
// only this layer rounds, the mean KL divergence of its predictions from those of fp32, in nats.
struct LayerMismatch {
  std::string layer;
  std::array<double, 2> adds = {}, inherits = {}, total = {}, alone = {};
  double apart = 0;  // of both sides from each other
};

struct MismatchSpec {
  config::Config config;  // complete but for its precision
  std::array<config::PrecisionConfig, 2> precision;
  std::string weights;        // as of Evaluate; empty: as model.init leaves them
  std::int64_t samples = 64;  // of split test, else validation, from the first one; at most
  bool layers = true;         // the first batch is looked at layer by layer
};
// Throws ConfigError for tasks other than classification and language and for delayed scales, which
// belong to a training, DataError and DeviceError.
std::vector<LayerMismatch> FindMismatch(const MismatchSpec& spec, const MismatchVisitor& visit,
                                        telemetry::Log& log);

}  // namespace ada::run
