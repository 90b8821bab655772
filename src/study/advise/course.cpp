// Thresholds are factors of a run's own first values, so they hold for losses of any size.
#include <algorithm>
#include <cmath>

#include "study/advise/run_record.h"

namespace ada::study {
namespace {

constexpr std::size_t kLast = 5;       // steps that are looked at before a run breaks
constexpr double kLossRises = 4;       // times the first loss
constexpr double kNormRises = 100;     // times the first norm, which moves more than the loss does
constexpr double kLossStaysAbove = 2;  // times the first loss

}  // namespace

void Course::Add(const telemetry::StepRow& row) {
  // A norm that is not finite although the step did not overflow is counted as 0: it cannot be
  // compared.
  if (row.overflow || !std::isfinite(row.loss)) return;
  const Moment moment{row.loss, std::isfinite(row.grad_norm) ? row.grad_norm : 0};
  if (good_steps_++ == 0) first_ = moment;
  last_.push_back(moment);
  if (last_.size() > kLast) last_.pop_front();
}

void Course::Add(const telemetry::TensorRow& row) {
  const auto [found, is_new] = tensors_.try_emplace(row.layer + "." + row.tensor);
  TensorCourse& tensor = found->second;
  const double largest = std::isfinite(row.max_abs) ? row.max_abs : 0;
  tensor.largest = std::max(tensor.largest, largest);
  if (!is_new) return;
  tensor.first_largest = largest;
  if (!std::isnan(row.underflow_pct_nonzero)) tensor.first_pct = row.underflow_pct_nonzero;
  tensor.first_mean = row.mean, tensor.first_std = row.std;
}

Course::Moment Course::Largest() const {
  Moment largest{};
  for (const Moment& moment : last_)
    largest = {std::max(largest.loss, moment.loss), std::max(largest.norm, moment.norm)};
  return largest;
}

bool Course::Rose() const { return !Text().empty(); }

// All of the last steps, so that one hard batch is no divergence; and more steps than are looked
// at, so that the first is not among them.
bool Course::Diverged() const {
  return good_steps_ > static_cast<std::int64_t>(kLast) && first_.loss > 0 &&
         std::all_of(last_.begin(), last_.end(), [this](const Moment& moment) {
           return moment.loss > kLossStaysAbove * first_.loss;
         });
}

std::string Course::Text() const {
  const auto rise = [](const char* what, double from, double to) {
    return std::string(what) + " rose from " + ShortNumber(from) + " to " + ShortNumber(to);
  };
  const Moment largest = Largest();
  // A loss that stays above needs to have risen less than one that peaks.
  if (largest.loss > (Diverged() ? kLossStaysAbove : kLossRises) * first_.loss && first_.loss > 0)
    return rise("the loss", first_.loss, largest.loss);
  if (largest.norm > kNormRises * first_.norm && first_.norm > 0)
    return rise("the norm of the gradients", first_.norm, largest.norm);
  return "";
}

const TensorCourse* Course::Find(const std::string& layer, const std::string& tensor) const {
  const auto found = tensors_.find(layer + "." + tensor);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace ada::study
