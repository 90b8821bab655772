// See checker.h.
#include "backend/compare/checker.h"

#include <sstream>
#include <utility>

#include "error.h"

namespace ada::backend::compare {
namespace {

template <class... Parts>
std::string Text(const Parts&... parts) {
  std::ostringstream text;
  text.precision(9);
  (text << ... << parts);
  return text.str();
}
std::string Allowed(double bound) { return bound == 0 ? "exactly equal" : Text(bound, " apart"); }
std::string PlaceOf(const Output& out, std::size_t place) {
  const auto& [n, h, w, c] = out.is.tensor.shape;
  const auto i = static_cast<std::int64_t>(place), x = i / c;
  if (out.parameter) return Text("value [", i, "]");
  return Text("value [n ", x / w / h, ", h ", x / w % h, ", w ", x % w, ", c ", i % c, "]");
}
bool Near(double a, double b, double bound) {
  return a == b || (std::isnan(a) && std::isnan(b)) || std::fabs(a - b) <= bound;
}

}  // namespace

std::string ToString(const Difference& d, const std::string& first_name,
                     const std::string& second_name) {
  const std::string op = d.layer.empty() ? d.op : Text("layer ", d.layer, " (", d.op, ")");
  return Text("call ", d.call, ", ", op, ", ", d.phase, d.tensor.empty() ? "" : ", ", d.tensor,
              ", ", d.what, ": ", first_name, " ", d.first, ", ", second_name, " ", d.second,
              " (allowed: ", d.allowed, ")");
}

void Checker::Report(const std::string& what, double first, double second,
                     const std::string& allowed) {
  if (std::exchange(reported_, true)) return;
  about_.what = what, about_.first = first, about_.second = second, about_.allowed = allowed;
  const auto& [first_name, second_name, slack, report, fp8_sums] = all_.options;
  if (report) return report(about_);
  throw DeviceError("compare: " + ToString(about_, first_name, second_name));
}

void Checker::Compare(const char* names, const Numbers& a, const Numbers& b, const Numbers& allowed,
                      double relative) {
  std::istringstream all(names);
  std::string name;
  for (std::size_t i = 0; std::getline(all, name, ','); ++i) {
    const double bound = allowed[i % allowed.size()] + relative * std::fabs(a[i]);
    if (!Near(a[i], b[i], bound)) Report(name, a[i], b[i], Allowed(bound));
  }
}
void Checker::CompareBins(const char* name, const Numbers& a, const Numbers& b, double allowed) {
  double apart = 0;
  std::size_t first = 0;
  for (std::size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) apart += std::fabs(a[i] - b[i]), first = i;
  if (apart > 2 * allowed) Report(name, a[first], b[first], Text(2 * allowed, " apart in all"));
}

// An output on both sides, and how far its values may lie apart (tolerances.h).
struct Checker::OutputValues {
  const Output& out;
  const SumTolerance& sums;
  std::vector<float> values[2] = {};
  double own = 1, numel = 0;     // own: the tensor's scale
  double largest = INFINITY;     // finite magnitude, of the side where it is smaller
  bool finite = sums.exact();    // or a side is
  double near = 0, counted = 0;  // before rounding; values that may be counted otherwise

  OutputValues(const PairedMemory& memory, const Output& output, const SumTolerance& of)
      : out(output), sums(of) {
    const scaling::TensorScaler* scaler = out.is.style.per_tensor_scale;
    if (scaler != nullptr && out.current == nullptr) own = AsDouble(memory.Read(0, &scaler->scale));
    for (const int side : {0, 1}) {
      std::vector<float> all = values[side] = memory.Values(side, out.is.tensor, out.images);
      numel = AsDouble(all.size());
      if (!out.is.tensor && out.is.stats != nullptr) {
        const TensorStats stats = memory.Read(side, out.is.stats);
        all = {stats.max_abs}, numel = AsDouble(stats.numel);
      }
      double most = 0;
      bool is_finite = true;
      for (const float x : all)
        std::isfinite(x) ? most = std::max(most, std::fabs(AsDouble(x))) : is_finite = false;
      largest = std::min(largest, most), finite = finite || is_finite;
    }
    near = sums.exact() ? 0 : sums.error * (sums.scale + largest);
    counted = sums.exact() ? 0 : kFew + numel * CountedShare(sums.error);
  }
  double Spacing(double x) const {
    const double rounded = own == 1 ? 0 : SpacingAt(kFp32, std::fabs(x));  // divided by own
    return sums.exact() ? 0 : SpacingAt(out.format, std::fabs(x) * own) / own + rounded;
  }
  // A value that overflows counts as one spacing above the largest value.
  double Finite(double x, double other) const {
    if (sums.exact() || std::isfinite(x) || (std::isnan(x) && out.format.has_inf)) return x;
    const double end = out.format.largest() / own;
    return std::copysign(end + Spacing(end), std::isnan(x) ? other : x);
  }
};

void Checker::CheckValues(const OutputValues& seen) {
  const std::vector<float>&first = seen.values[0], &second = seen.values[1];
  double otherwise = 0;
  std::size_t last = 0;
  for (std::size_t i = 0; i < first.size(); ++i) {
    const double x = AsDouble(first[i]), y = AsDouble(second[i]), a = seen.Finite(x, y),
                 b = seen.Finite(y, x), spacing = std::max(seen.Spacing(a), seen.Spacing(b)),
                 bound = seen.near + seen.sums.roundings * spacing;
    if (!seen.finite && !std::isfinite(x + y)) continue;
    if (!Near(a, b, bound)) return Report(PlaceOf(seen.out, i), x, y, Allowed(bound));
    if (!Near(a, b, seen.near)) ++otherwise, last = i;
  }
  const double most = kFew + seen.numel * RoundedShare(seen.sums.error, seen.out.format);
  if (otherwise > most)
    Report(Text(PlaceOf(seen.out, last), ", one of ", otherwise, " rounded otherwise"),
           AsDouble(first[last]), AsDouble(second[last]), Text(most, " of them"));
}

void Checker::CheckStats(const OutputValues& seen, const TensorStats& a, const TensorStats& b) {
  // If nothing else is measured, a side may record the largest magnitude before or after rounding.
  const auto largest = [&](const TensorStats& s) {
    const auto own = static_cast<float>(seen.own);
    return seen.Finite(
        AsDouble(a.full ? s.max_abs : RoundTo(seen.out.format, s.max_abs * own) / own), 1);
  };
  const double near = seen.near, one = near + seen.Spacing(seen.largest),
               n = std::max(1.0, seen.numel), root = std::sqrt(n);
  Compare("numel,full", NumbersOf(a.numel, a.full), NumbersOf(b.numel, b.full));
  // A library multiplies the zeros of padding as well and gets NaN where the other side has inf.
  if (!seen.finite) return;
  Compare("max_abs", {largest(a)}, {largest(b)}, {one});
  if (!a.full || !b.full) return;
  Compare(kCounts, CountsOf(a), CountsOf(b), {seen.counted});
  // The smallest magnitude may be zero on the other side.
  Compare(kTotals, TotalsOf(a), TotalsOf(b),
          {seen.sums.exact() ? 0 : INFINITY, near + kDoubleSums * a.l1 / n,
           n * near + kDoubleSums * a.l1, root * near + kDoubleSums * a.l2,
           2 * near + kDeviation * a.l2 / root});
}

void Checker::CheckMoments(const OutputValues& seen, const TensorMoments& a,
                           const TensorMoments& b) {
  const double near = 2 * seen.near, rms = std::sqrt(a.mean_square),
               one = near + seen.Spacing(seen.largest),
               more = seen.out.is.all_moments && std::isfinite(rms) ? one : INFINITY,
               square = kMomentSums * a.mean_square + 2 * near * (rms + near);
  if (seen.finite)
    Compare(kMoments, MomentsOf(a), MomentsOf(b),
            {square, one, more, more, more, kMomentSums * rms + near + more});
}

void Checker::CheckDecision(const Output& out, double bound) {
  about_.tensor = "decision";
  double after = bound;  // of what follows from a power of two
  const auto check = [&](const scaling::ScaleDecision& a, const scaling::ScaleDecision& b) {
    Compare(kStages, StagesOf(a), StagesOf(b), {0}, bound);
    // Next to a power of two the other side may get the next smaller one.
    if (a.pow2 != b.pow2 && Near(std::max(a.pow2, b.pow2), a.bound, bound * a.bound)) after = 1;
    Compare(kScales, ScalesOf(a), ScalesOf(b), {0}, after);
  };
  Both(out.decision, check);
  if (out.scaler != nullptr) Both(&out.scaler->decision, check);
  about_.tensor = out.name;
  Both(out.is.scale,
       [&](float a, float b) { Compare("scale", {AsDouble(a)}, {AsDouble(b)}, {0}, after); });
}

void Checker::CheckNotes(const OutputValues& seen, const Pass& pass) {
  const Output& out = seen.out;
  Both(out.is.stats, [&](const auto& a, const auto& b) { CheckStats(seen, a, b); });
  Both(out.is.moments, [&](const auto& a, const auto& b) { CheckMoments(seen, a, b); });
  if (pass.count && pass.bins && seen.finite)
    Both(out.is.style.bins, [&](const ExponentBins& a, const ExponentBins& b) {
      CompareBins("histogram", BinsOf(a), BinsOf(b), seen.counted);
    });
  Both(out.current, [&](const auto& a, const auto& b) {
    Compare("tensor scale", {AsDouble(a.scale)}, {AsDouble(b.scale)});
  });
  Both(out.blocks, [&](const BlockCounts& a, const BlockCounts& b) {
    Compare(kBlockCounts, CountsOf(a), CountsOf(b));
    Compare(kBlockTotals, TotalsOf(a), TotalsOf(b), {kLogarithms * AsDouble(a.blocks)},
            kDoubleSums);
  });
  Both(out.scaler, [&](const scaling::LayerScaler& a, const scaling::LayerScaler& b) {
    about_.tensor = "state";
    const double near = seen.finite ? seen.near / AsDouble(a.decision.alpha) : INFINITY;
    Compare(kState, StateOf(a.state), StateOf(b.state),
            {0, seen.sums.decision * std::fabs(a.state.unbound), near});
    if (seen.finite) CompareBins("tail", BinsOf(a.state.tail), BinsOf(b.state.tail), seen.counted);
  });
}

void Checker::Check(const Outputs& outputs, const Pass& pass, SumTolerances sums) {
  for (auto& [name, of] : sums)  // before alphas become equal
    for (const scaling::LayerScaler* scaler : of.alphas) {
      if (scaler == nullptr) continue;
      const double a = AsDouble(all_.memory.Read(0, &scaler->decision.alpha)),
                   b = AsDouble(all_.memory.Read(1, &scaler->decision.alpha));
      of.scale *= a;
      if (a != b) of.error += of.alpha_first ? INFINITY : std::max(a / b, b / a) - 1;
    }
  for (const Output& out : outputs) CheckDecision(out, sums[out.name].decision);
  for (const Output& out : outputs) {
    const OutputValues seen(all_.memory, out, sums[out.name]);
    about_.tensor = out.name;
    CheckValues(seen);
    all_.memory.Copy(out.is.tensor.data, seen.values[0].size() * BytesOf(out.is.tensor.storage));
    CheckNotes(seen, pass);
  }
}

}  // namespace ada::backend::compare
