// The loss of default boxes: Huber's of the positive ones' locations, softmax cross-entropy of
// these and of hard negatives.
#include <algorithm>
#include <limits>
#include <vector>

#include "backend/cpu/ops/loss_gradient.h"
#include "backend/cpu/ops/ops.h"
#include "backend/cpu/ops/softmax_rows.h"
#include "backend/formulas.h"
#include "backend/loss_formulas.h"
#include "error.h"

namespace ada::backend::cpu {
namespace {

// The op of a MultiboxLossSpec: SetTargets, then Forward, then Backward for the same rows. Forward
// chooses the hard negatives, and Backward gives a gradient to these and to positive boxes only.
class CpuMultiboxLoss final : public LossOp {
 public:
  CpuMultiboxLoss(const Context& context, const MultiboxLossSpec& spec)
      : context_(context),
        spec_(spec),
        boxes_(spec.scores.shape.h * spec.scores.shape.w),
        rows_(context, spec.scores),
        location_out_(spec.dlocations, spec.reference),
        score_out_(spec.dscores, spec.reference),
        entropies_(static_cast<std::size_t>(spec.scores.shape.n * boxes_)),
        better_(entropies_.size()),
        parts_(static_cast<std::size_t>(spec.scores.shape.n)),
        keys_(static_cast<std::size_t>(context.pool.size())) {
    const Shape& locations = spec.locations.shape;
    ADA_CHECK(locations.n == spec.scores.shape.n && locations.c == 4 &&
              locations.h * locations.w == boxes_);
    context.scratch.Reserve(BlockValues(locations) * sizeof(float), 0);
  }

  void SetTargets(const Targets& targets, int rows) override {
    ADA_CHECK(targets.locations != nullptr && rows <= spec_.scores.shape.n);
    labels_.assign(targets.labels, targets.labels + rows * boxes_);
    targets_.assign(targets.locations, targets.locations + rows * boxes_ * 4);
    for (const std::int32_t label : labels_) ADA_CHECK(label < spec_.scores.shape.c);
  }

  void Forward(const Pass& pass) override {
    ADA_CHECK(static_cast<std::size_t>(pass.rows * boxes_) == labels_.size());
    rows_.Forward(
        context_, pass.rows, labels_.data(),
        [this](std::int64_t, std::int64_t row, double mine, double log_sum, std::int32_t better) {
          const auto i = static_cast<std::size_t>(row);
          entropies_[i] = log_sum - mine;
          better_[i] = better;
        });
    // Cross-entropies of all boxes come first; by them each image chooses, on its own, which
    // background boxes stay in.
    used_ = labels_;
    context_.pool.For(pass.rows, [&](std::int64_t image, int worker) { Image(image, worker); });
    LossResult sum;
    for (std::int64_t image = 0; image < pass.rows; ++image)
      sum.Add(parts_[static_cast<std::size_t>(image)]);
    if (!pass.accumulate) total_ = LossResult{};
    total_.Add(sum);
  }

  void Backward(const Pass& pass) override {
    const double factor = TermFactor(1, pass.loss_terms);
    location_out_.Round(context_, pass, [&](std::int64_t image, std::int64_t n, int worker) {
      return Locations(image, n, worker, factor);
    });
    const std::vector<double> factors(static_cast<std::size_t>(spec_.scores.shape.c), factor);
    score_out_.Round(context_, pass, [&](std::int64_t image, std::int64_t n, int worker) {
      return rows_.Gradient(context_, image, n, worker, used_.data(), factors.data());
    });
  }

  LossResult Result() override { return total_; }

 private:
  // The image's part of the loss.
  void Image(std::int64_t image, int worker) {
    const auto first = static_cast<std::size_t>(image * boxes_);
    const std::int32_t* labels = used_.data() + first;
    Choose(image, keys_[static_cast<std::size_t>(worker)]);
    LossResult part;
    for (std::int64_t box = 0; box < boxes_; ++box) {
      if (labels[box] < 0) continue;
      const auto i = first + static_cast<std::size_t>(box);
      part.loss_sum += entropies_[i];
      if (labels[box] == 0) continue;
      // Hits are counted of positive boxes only: the background is no class to be found.
      part.top1 += Hits(entropies_[i], better_[i], 1);
      part.top5 += Hits(entropies_[i], better_[i], 5);
    }
    part.location_sum = LocationLoss(image, worker);
    part.loss_sum += part.location_sum;
    parts_[static_cast<std::size_t>(image)] = part;
  }

  // Leaves out the image's background boxes that are no hard negatives.
  void Choose(std::int64_t image, std::vector<std::uint64_t>& keys) {
    std::int32_t* labels = used_.data() + image * boxes_;
    const double* entropies = entropies_.data() + image * boxes_;
    std::int64_t positives = 0;
    keys.clear();
    for (std::int64_t box = 0; box < boxes_; ++box) {
      positives += labels[box] > 0 ? 1 : 0;
      if (labels[box] != 0) continue;
      // The largest key comes first; of equal ones, the first box.
      const std::uint64_t after =
          std::numeric_limits<std::uint32_t>::max() - NegativeKey(entropies[box]);
      keys.push_back(after << 32 | static_cast<std::uint64_t>(box));
    }
    const auto wanted = static_cast<std::size_t>(std::min<std::int64_t>(
        NegativesWanted(spec_.negatives, positives), static_cast<std::int64_t>(keys.size())));
    if (wanted == keys.size()) return;
    // A key has the complement of NegativeKey in its upper half and the box in its lower one: keys
    // are distinct, so that which ones come first does not depend on the algorithm.
    std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(wanted), keys.end());
    for (std::size_t k = wanted; k < keys.size(); ++k) labels[keys[k] & 0xffffffffu] = -1;
  }

  // Huber's loss of the image's positive boxes. Under reads_background the others count zero times
  // their loss, which is NaN where it is not finite.
  double LocationLoss(std::int64_t image, int worker) {
    const float* locations = Widened(image, 1, worker);
    const float* targets = targets_.data() + image * boxes_ * 4;
    const std::int32_t* labels = labels_.data() + image * boxes_;
    double sum = 0;
    for (std::int64_t i = 0; i < boxes_ * 4; ++i) {
      const bool positive = labels[i / 4] > 0;
      if (!positive && !spec_.reads_background) continue;
      const double loss = HuberLoss(LocationDifference(locations[i], targets[i]));
      sum += positive ? loss : loss * 0;
    }
    return sum;
  }

  float* Widened(std::int64_t image, std::int64_t n, int worker) {
    auto* values = reinterpret_cast<float*>(context_.scratch.worker(worker));
    context_.kernels.widen(At(spec_.locations, image), values, n * boxes_ * 4);
    return values;
  }
  // The unscaled gradient of a block's locations.
  float* Locations(std::int64_t image, std::int64_t n, int worker, double factor) {
    float* values = Widened(image, n, worker);
    const float* targets = targets_.data() + image * boxes_ * 4;
    const std::int32_t* labels = labels_.data() + image * boxes_;
    for (std::int64_t i = 0; i < n * boxes_ * 4; ++i)
      values[i] =
          labels[i / 4] > 0
              ? static_cast<float>(HuberSlope(LocationDifference(values[i], targets[i])) * factor)
              : 0.0f;
    return values;
  }

  Context context_;
  MultiboxLossSpec spec_;
  std::int64_t boxes_;
  SoftmaxRows rows_;
  LossGradient location_out_, score_out_;
  std::vector<double> entropies_;            // by box
  std::vector<std::int32_t> better_;         // classes before the label
  std::vector<std::int32_t> labels_, used_;  // used_: labels, negative where a box has no part
  std::vector<float> targets_;
  std::vector<LossResult> parts_;                 // by image
  std::vector<std::vector<std::uint64_t>> keys_;  // by worker
  LossResult total_;
};

}  // namespace

std::unique_ptr<LossOp> MakeLossOp(const Context& c, const MultiboxLossSpec& s) {
  return std::make_unique<CpuMultiboxLoss>(c, s);
}

}  // namespace ada::backend::cpu
