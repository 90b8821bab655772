// What is counted of a tensor: equal but for values that lie at a boundary. How many do is found
// out (BudgetOf) only where something differs.
#include <algorithm>
#include <optional>

#include "backend/compare/checker.h"

namespace ada::backend::compare {

// The budget of a tensor, made when it is first asked for.
class Checker::Lazy {
 public:
  Lazy(const ReferenceBounds* bounds, const Rounder& rounder, std::int64_t values, double edge,
       double scale)
      : bounds_(bounds), rounder_(rounder), values_(values), edge_(edge), scale_(scale) {}
  const Budget& operator*() {
    if (!budget_) budget_ = BudgetOf(bounds_, rounder_, values_, edge_, scale_);
    return *budget_;
  }

 private:
  const ReferenceBounds* bounds_;
  const Rounder& rounder_;
  std::int64_t values_;
  double edge_, scale_;
  std::optional<Budget> budget_;
};

void Checker::CheckCount(const std::string& what, std::int64_t first, std::int64_t second,
                         const std::function<std::int64_t()>& allowed) {
  if (first == second) return;
  const std::int64_t most = allowed();
  if (std::abs(first - second) > most)
    Tell(what, static_cast<double>(first), static_cast<double>(second),
         most == 0 ? "exactly equal" : std::to_string(most) + " apart");
}

void Checker::CheckCounts(const TensorStats& a, const TensorStats& b, Lazy& lazy) {
  const auto count = [&](const char* what, std::int64_t TensorStats::*field,
                         std::int64_t Budget::*allowed = nullptr) {
    CheckCount(what, a.*field, b.*field,
               [&] { return (allowed == nullptr ? 0 : (*lazy).*allowed) + (*lazy).unknown; });
  };
  count("numel", &TensorStats::numel);
  CheckNumber("full", a.full, b.full, 0);
  if (!a.full || !b.full) return;
  count("zeros_before", &TensorStats::zeros_before, &Budget::zeros_before);
  count("zeros_after", &TensorStats::zeros_after, &Budget::zeros_after);
  count("underflow", &TensorStats::underflow, &Budget::underflow);
  count("below_min", &TensorStats::below_min, &Budget::below_min);
  count("subnormal", &TensorStats::subnormal, &Budget::subnormal);
  count("overflow", &TensorStats::overflow, &Budget::overflow);
  count("inf", &TensorStats::inf);
  count("nan", &TensorStats::nan);
  count("above_edge", &TensorStats::above_edge, &Budget::above_edge);
}

void Checker::CheckStats(const Output& out, Lazy& lazy) {
  const TensorStats a = addresses_.Read(0, out.stats), b = addresses_.Read(1, out.stats);
  CheckCounts(a, b, lazy);
  // Cheaply, then with what the intervals allow.
  const auto near = [&](const char* what, double x, double y, double rounding, auto&& allowed) {
    if (Near(x, y, rounding) || (*lazy).unknown > 0) return;
    CheckNumber(what, x, y, rounding + allowed(*lazy));
  };
  const auto largest = [](const Budget& budget) { return budget.largest; };
  if (!a.full || !b.full) return CheckLargest(out.format, a.max_abs, b.max_abs, lazy);
  near("max_abs", static_cast<double>(a.max_abs), static_cast<double>(b.max_abs), 0, largest);
  const auto n = static_cast<double>(std::max<std::int64_t>(a.numel, 1));
  // Where a value may be zero, the smallest of the others may be any of them.
  near("min_abs", static_cast<double>(a.min_abs), static_cast<double>(b.min_abs), 0,
       [](const Budget& budget) { return budget.zeros_before > 0 ? INFINITY : budget.largest; });
  near("mean", a.mean, b.mean, kDoubleSums * a.l1 / n,
       [n](const Budget& budget) { return budget.sum / n; });
  near("l1", a.l1, b.l1, kDoubleSums * a.l1, [](const Budget& budget) { return budget.sum; });
  near("l2", a.l2, b.l2, kDoubleSums * a.l2,
       [](const Budget& budget) { return std::sqrt(budget.sum_square); });
  near("std", a.std, b.std, kDeviation * a.l2 / std::sqrt(n),
       [n](const Budget& budget) { return 2 * std::sqrt(budget.sum_square / n); });
}

// Where no more than the largest magnitude is measured, either side may have taken it before or
// after rounding.
void Checker::CheckLargest(const NumberFormat& format, float a, float b, Lazy& lazy) {
  const auto allowed = [&](double width) {
    const double low = Wide(a) - width, high = Wide(a) + width;
    const auto rounded = [&](double x) { return Wide(RoundTo(format, static_cast<float>(x))); };
    return Same(a, b) || Same(b, rounded(a)) || Same(a, rounded(b)) ||
           (Wide(b) >= std::min(low, rounded(low)) && Wide(b) <= std::max(high, rounded(high)));
  };
  if (allowed(0) || (*lazy).unknown > 0 || allowed((*lazy).largest)) return;
  CheckNumber("max_abs", Wide(a), Wide(b), (*lazy).largest);
}

void Checker::CheckBins(const Output& out, Lazy& lazy) {
  const ExponentBins a = addresses_.Read(0, out.style.bins), b = addresses_.Read(1, out.style.bins);
  const auto allowed = [&] { return 2 * ((*lazy).bins + (*lazy).unknown); };
  std::int64_t apart = 0, first = 0, second = 0;
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e) {
    apart += std::abs(a[e] - b[e]);
    if (a[e] != b[e] && first == second) first = a[e], second = b[e];
  }
  if (apart > 0 && apart > allowed())
    Tell("histogram", static_cast<double>(first), static_cast<double>(second),
         std::to_string(allowed()) + " apart in all");
  CheckCount("histogram's zeros", a.zeros, b.zeros, allowed);
  CheckCount("histogram's inf", a.inf, b.inf, allowed);
  CheckCount("histogram's nan", a.nan, b.nan, allowed);
}

void Checker::CheckTail(const scaling::ExponentTail& a, const scaling::ExponentTail& b,
                        const ReferenceBounds* dgrad, std::int64_t values) {
  const Pass none;
  const Rounder exact(kFp32, {}, 1, none);
  Lazy lazy(dgrad, exact, values, INFINITY, 1);
  const auto allowed = [&] { return 2 * ((*lazy).bins + (*lazy).unknown); };
  CheckCount("tail's non-zero values", a.nonzero, b.nonzero, allowed);
  std::int64_t apart = 0;
  for (int e = 0; e < scaling::ExponentTail::kBins; ++e) apart += std::abs(a.bins[e] - b.bins[e]);
  CheckCount("tail's bins", apart, 0, allowed);
  if (!Same(a.largest, b.largest))
    CheckNumber("tail's largest", a.largest, b.largest, (*lazy).largest);
  CheckNumber("tail's scale", static_cast<double>(a.scale_in), static_cast<double>(b.scale_in),
              decision_bound_ * std::fabs(static_cast<double>(a.scale_in)));
  CheckNumber("tail's limit", a.limit, b.limit, 0);
}

void Checker::Check(const Output& out, const Pass& pass, const ReferenceBounds* bounds) {
  tensor_ = out.name;
  const float own = out.style.per_tensor_scale == nullptr
                        ? 1
                        : addresses_.Read(0, &out.style.per_tensor_scale->scale);
  Rounder rounder(out.format, out.style, own, pass);
  rounder.relu = out.relu;
  if (out.tensor) CheckValues(out, pass, rounder, bounds);
  const double scale =
      out.scale == nullptr ? 1 : static_cast<double>(addresses_.Read(0, out.scale));
  Lazy lazy(bounds, rounder, out.values(pass), pass.edge, scale);
  if (out.stats != nullptr) CheckStats(out, lazy), addresses_.Copy(out.stats);
  if (out.moments != nullptr && out.tensor) CheckMoments(out, pass), addresses_.Copy(out.moments);
  const bool bins = out.style.bins != nullptr && pass.count && pass.bins;
  if (bins) CheckBins(out, lazy), addresses_.Copy(out.style.bins);
  if (!out.tensor) return;
  const auto bytes = static_cast<std::size_t>(out.values(pass)) * BytesOf(out.tensor.storage);
  addresses_.Copy(out.tensor.data, bytes);
}

}  // namespace ada::backend::compare
