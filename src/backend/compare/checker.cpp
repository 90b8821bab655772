// Values, moments, scales and decisions of one call; see checker.h.
#include "backend/compare/checker.h"

#include <algorithm>

namespace ada::backend::compare {
namespace {

constexpr double kQuick = 8 * 0x1p-24;

std::string PlaceOf(const Output& out, std::int64_t i) {
  const Shape& s = out.tensor.shape;
  if (out.parameter) return "value [" + std::to_string(i) + "]";
  const std::int64_t c = i % s.c, w = i / s.c % s.w, h = i / s.c / s.w % s.h, n = i / s.per_image();
  return "value [n " + std::to_string(n) + ", h " + std::to_string(h) + ", w " + std::to_string(w) +
         ", c " + std::to_string(c) + "]";
}

std::string RangeText(const Range& range) {
  if (Same(static_cast<double>(range.low), static_cast<double>(range.high)))
    return NumberText(static_cast<double>(range.low));
  return NumberText(static_cast<double>(range.low)) + " to " +
         NumberText(static_cast<double>(range.high));
}

}  // namespace

void Checker::Tell(const std::string& what, double first, double second,
                   const std::string& allowed) {
  if (told_) return;
  told_ = true;
  Difference difference = about_;
  difference.tensor = tensor_, difference.what = what;
  difference.first = first, difference.second = second, difference.allowed = allowed;
  report_(difference);
}

void Checker::CheckNumber(const std::string& what, double first, double second, double bound) {
  if (!Near(first, second, bound))
    Tell(what, first, second, bound == 0 ? "exactly equal" : NumberText(bound) + " apart");
}

void Checker::CheckValues(const Output& out, const Pass& pass, const Rounder& rounder,
                          const ReferenceBounds* bounds) {
  const std::int64_t rows = out.parameter ? out.tensor.shape.n : pass.rows;
  const std::vector<float> a = addresses_.Values(0, out.tensor, rows),
                           b = addresses_.Values(1, out.tensor, rows);
  // Within every bound of a sum, whose terms' magnitudes are at least its own.
  const bool wide =
      bounds != nullptr && out.format == kFp32 && out.style.per_tensor_scale == nullptr;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (Same(x, y) || (wide && Near(x, y, kQuick * std::min(std::fabs(x), std::fabs(y))))) continue;
    const auto place = static_cast<std::int64_t>(i);
    if (bounds == nullptr) return Tell(PlaceOf(out, place), x, y, "exactly equal");
    const Interval before = bounds->Before(place);
    if (!before.finite()) continue;
    const Range range = StoredRange(rounder, before, place);
    if (!range.Holds(a[i]) || !range.Holds(b[i]))
      return Tell(PlaceOf(out, place), x, y, RangeText(range));
  }
}

void Checker::CheckMoments(const Output& out, const Pass& pass) {
  const TensorMoments a = addresses_.Read(0, out.moments), b = addresses_.Read(1, out.moments);
  // Stored values may differ where the tensor's check has let them: by as much may what is said of
  // them. A side is held to its own values, which are read anew.
  std::vector<float> stored[2] = {addresses_.Values(0, out.tensor, pass.rows),
                                  addresses_.Values(1, out.tensor, pass.rows)};
  double sum = 0, square = 0, largest = 0, l1 = 0, l2 = 0;
  for (std::size_t i = 0; i < stored[0].size(); ++i) {
    const auto x = static_cast<double>(stored[0][i]), y = static_cast<double>(stored[1][i]);
    sum += std::fabs(x - y), square += std::fabs(x * x - y * y);
    largest = std::max(largest, std::fabs(x - y)), l1 += std::fabs(x), l2 += x * x;
  }
  const auto n = static_cast<double>(std::max<std::size_t>(stored[0].size(), 1));
  CheckNumber("mean square", a.mean_square, b.mean_square,
              std::isfinite(l2) ? square / n + kMomentSums * l2 / n : 0);
  if (!std::isfinite(a.mean_square) || !std::isfinite(b.mean_square)) return;
  const auto low = [](float x) { return static_cast<double>(x); };
  if (!out.all_moments) {
    return CheckNumber("largest magnitude", std::max(std::fabs(low(a.min)), std::fabs(low(a.max))),
                       std::max(std::fabs(low(b.min)), std::fabs(low(b.max))), largest);
  }
  CheckNumber("mean", a.mean, b.mean, sum / n + kMomentSums * l1 / n);
  CheckNumber("smallest stored", low(a.min), low(b.min), largest);
  CheckNumber("largest stored", low(a.max), low(b.max), largest);
  CheckNumber("smallest stored magnitude", low(a.min_abs), low(b.min_abs), largest);
}

void Checker::CheckScale(const std::string& name, const float* scale) {
  if (scale == nullptr) return;
  tensor_ = name;
  const auto a = static_cast<double>(addresses_.Read(0, scale)),
             b = static_cast<double>(addresses_.Read(1, scale));
  CheckNumber("scale", a, b, decision_bound_ * std::fabs(a));
  addresses_.Copy(scale);
}

void Checker::CheckStages(const scaling::ScaleDecision& a, const scaling::ScaleDecision& b) {
  const auto near = [&](const char* what, double x, double y) {
    CheckNumber(what, x, y, decision_bound_ * std::fabs(x));
  };
  near("scale_in", static_cast<double>(a.scale_in), static_cast<double>(b.scale_in));
  near("unbound", a.unbound, b.unbound);
  near("bound", a.bound, b.bound);
  CheckNumber("limit", static_cast<double>(a.limit), static_cast<double>(b.limit), 0);
  CheckNumber("error", static_cast<double>(a.error), static_cast<double>(b.error), 0);
  CheckNumber("halvings", a.halvings, b.halvings, 0);
  // At a power of two the next smaller one may be chosen.
  const bool boundary = Near(a.bound, b.bound, decision_bound_ * std::fabs(a.bound)) &&
                        a.bound != b.bound && Near(a.pow2, b.pow2, std::fabs(a.pow2));
  if (boundary && !Same(a.pow2, b.pow2)) return;
  near("pow2", a.pow2, b.pow2);
  near("alpha", static_cast<double>(a.alpha), static_cast<double>(b.alpha));
  near("scale_out", static_cast<double>(a.scale_out), static_cast<double>(b.scale_out));
}

void Checker::CheckDecision(const scaling::ScaleDecision* decision) {
  if (decision == nullptr) return;
  tensor_ = "decision";
  CheckStages(addresses_.Read(0, decision), addresses_.Read(1, decision));
  addresses_.Copy(decision);
}

void Checker::CheckScaler(const scaling::LayerScaler* scaler, const ReferenceBounds* dgrad,
                          std::int64_t values) {
  if (scaler == nullptr) return;
  tensor_ = "decision";
  const scaling::LayerScaler a = addresses_.Read(0, scaler), b = addresses_.Read(1, scaler);
  CheckStages(a.decision, b.decision);
  tensor_ = "state";
  CheckNumber("calls", static_cast<double>(a.state.calls), static_cast<double>(b.state.calls), 0);
  CheckNumber("unbound", a.state.unbound, b.state.unbound,
              decision_bound_ * std::fabs(a.state.unbound));
  CheckNumber("unbound_limit", static_cast<double>(a.state.unbound_limit),
              static_cast<double>(b.state.unbound_limit), 0);
  CheckNumber("state_scale", static_cast<double>(a.state.state_scale),
              static_cast<double>(b.state.state_scale), 0);
  CheckNumber("tail_is_new", a.state.tail_is_new, b.state.tail_is_new, 0);
  CheckTail(a.state.tail, b.state.tail, dgrad, values);
  addresses_.Copy(scaler);
}

void Checker::CheckNear(const std::string& name, const Tensor& tensor,
                        const std::function<double(std::size_t)>& bound) {
  tensor_ = name;
  const std::vector<float> a = addresses_.Values(0, tensor, tensor.shape.n),
                           b = addresses_.Values(1, tensor, tensor.shape.n);
  for (std::size_t i = 0; i < a.size(); ++i)
    CheckNumber("value [" + std::to_string(i) + "]", static_cast<double>(a[i]),
                static_cast<double>(b[i]), bound(i));
  addresses_.Copy(tensor.data, tensor.bytes());
}

}  // namespace ada::backend::compare
