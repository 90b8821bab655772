// The page of a choice: the verdict, the table, loss minus baseline by step, and the layers that
// lose most.
#include <algorithm>
#include <array>
#include <cmath>

#include "io/text.h"
#include "study/choose/choice.h"
#include "study/output.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

constexpr int kCurveHeight = 320, kCurveLeft = 80, kCurveTop = 16;
constexpr int kCurveRight = kPageWidth - 16, kCurveBottom = kCurveHeight - 36;
// A colorblind-safe order (Okabe and Ito), of which each arm but the baseline has one.
constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#56b4e9", "#e69f00", "#000000"};
constexpr std::size_t kMostPoints = 400;

const char* ColorOf(std::size_t arm) { return kColors[(arm - 1) % kColors.size()]; }

// Means over `window` steps up to each step, at most kMostPoints of them, as (step, value); steps
// whose loss is not finite end the curve.
std::vector<std::pair<double, double>> SmoothedCurve(const std::vector<double>& by_step,
                                                     std::size_t window) {
  std::vector<std::pair<double, double>> points;
  const std::size_t stride = std::max<std::size_t>(1, by_step.size() / kMostPoints);
  double sum = 0;
  for (std::size_t i = 0; i < by_step.size() && std::isfinite(by_step[i]); ++i) {
    sum += by_step[i];
    if (i >= window) sum -= by_step[i - window];
    if (i % stride == 0 || i + 1 == by_step.size())
      points.emplace_back(static_cast<double>(i + 1),
                          sum / static_cast<double>(std::min(i + 1, window)));
  }
  return points;
}

// A round step of an axis that divides `range` into about five.
double TickOf(double range) {
  const double rough = range / 5, power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power) return factor * power;
  return 10 * power;
}

// The curves of all arms that train on one pair of axes, with the noise of twins as a band.
class Curves {
 public:
  Curves(const Measured& results, const ArmPlan& plan) : results_(results), plan_(plan) {
    const std::size_t window = std::max<std::size_t>(1, static_cast<std::size_t>(plan.steps) / 25);
    std::vector<double> ends;  // that the axis has to hold
    for (const ArmResult& arm : results.arms) {
      curves_.push_back(SmoothedCurve(arm.by_step, window));
      // The first steps of an arm may lie far off: the axis holds the last three quarters of all.
      for (std::size_t i = curves_.back().size() / 4; i < curves_.back().size(); ++i)
        ends.push_back(curves_.back()[i].second);
    }
    if (std::isfinite(results.noise())) noise_ = results.noise();
    low_ = -2 * noise_, high_ = 2 * noise_;
    for (const double end : ends) low_ = std::min(low_, end), high_ = std::max(high_, end);
    const double margin = high_ > low_ ? 0.08 * (high_ - low_) : 1e-6;
    low_ -= margin, high_ += margin;
  }

  std::string Svg() const {
    std::string svg =
        Formatted("<svg viewBox=\"0 0 %d %d\" role=\"img\" ", kPageWidth, kCurveHeight) +
        "aria-label=\"loss minus baseline by step\">\n" + Axes();
    svg += SvgBand(kCurveLeft, Y(2 * noise_), kCurveRight - kCurveLeft,
                   Y(-2 * noise_) - Y(2 * noise_), "twice what chance alone changes") +
           "\n" + SvgLine(kCurveLeft, Y(0), kCurveRight, Y(0), "#555") + "\n";
    for (std::size_t arm = 1; arm < curves_.size(); ++arm) svg += Curve(arm);
    return svg + "</svg>\n";
  }

 private:
  double X(double step) const {
    return kCurveLeft + (kCurveRight - kCurveLeft) * step / static_cast<double>(plan_.steps);
  }
  // Values beyond the axis lie on its edge.
  double Y(double value) const {
    const double share = (std::clamp(value, low_, high_) - low_) / (high_ - low_);
    return kCurveBottom - share * (kCurveBottom - kCurveTop);
  }

  std::string Axes() const {
    std::string svg;
    const double tick = TickOf(high_ - low_);
    for (double at = std::ceil(low_ / tick) * tick; at <= high_; at += tick)
      svg += SvgLine(kCurveLeft, Y(at), kCurveRight, Y(at), "#eee") +
             SvgText(kCurveLeft - 6, Y(at) + 4,
                     std::fabs(at) < tick / 2 ? "0" : Formatted("%+.3g", at), "end") +
             "\n";
    for (int part = 0; part <= 4; ++part) {
      const double step = static_cast<double>(plan_.steps) * part / 4;
      svg += SvgText(X(step), kCurveBottom + 20, Formatted("%.0f", step), "middle") + "\n";
    }
    return svg;
  }

  std::string Curve(std::size_t arm) const {
    if (curves_[arm].empty()) return "";
    std::string points;
    for (const auto& [step, value] : curves_[arm])
      points += Formatted("%.1f,%.1f ", X(step), Y(value));
    return "<polyline points=\"" + points + "\" fill=\"none\" stroke=\"" + ColorOf(arm) +
           "\" stroke-width=\"1.6\"><title>" + Html(results_.arms[arm].name) +
           "</title></polyline>\n";
  }

  const Measured& results_;
  const ArmPlan& plan_;
  std::vector<std::vector<std::pair<double, double>>> curves_;
  double noise_ = 0, low_ = 0, high_ = 0;
};

std::string Cell(const std::string& text) { return "<td>" + text + "</td>"; }

std::string ArmRows(const Measured& results, const Verdict& verdict) {
  const ArmResult& baseline = results.arms.front();
  std::string rows;
  for (std::size_t i = 0; i < results.arms.size(); ++i) {
    const ArmResult& arm = results.arms[i];
    const bool trains = std::isfinite(arm.mean) && i > 0;
    rows += arm.name == verdict.arm ? "<tr class=\"taken\"><td>" : "<tr><td>";
    if (i > 0) rows += std::string("<span style=\"color:") + ColorOf(i) + "\">&#9632;</span> ";
    rows += Html(arm.name) + "</td>" +
            Cell(std::isfinite(arm.loss) ? Formatted("%.5g", arm.loss) : "") +
            Cell(trains   ? Formatted("%+.3g", arm.mean)
                 : i == 0 ? ""
                          : Html(arm.trouble)) +
            Cell(trains && std::isfinite(arm.deviation) ? Formatted("%.2g", arm.deviation) : "") +
            Cell(trains ? Formatted("%+.2f %%", 100 * arm.mean / baseline.loss) : "") +
            Cell(Formatted("%.3g", arm.skipped)) + Cell(Formatted("%.3g", arm.bits)) +
            Cell(Formatted("%.0f %%", 100 * arm.bits / baseline.bits)) +
            Cell(arm.lost_tensor.empty()
                     ? ""
                     : Html(arm.lost_tensor) + Formatted(": %.3g %%, ", arm.lost_pct) +
                           Html(arm.cause)) +
            "</tr>\n";
  }
  return rows;
}

// Bars of the worst tensors of each arm; an arm that lost nothing is one sentence.
std::string WorstBars(const Measured& results) {
  constexpr int kRow = 20, kNames = 260, kBar = 480;
  std::string html;
  for (std::size_t i = 0; i < results.arms.size(); ++i) {
    const ArmResult& arm = results.arms[i];
    html += "<h3>" + Html(arm.name) + "</h3>\n<p>" + Html(arm.lost) + ".</p>\n";
    if (arm.worst.empty()) continue;
    const double most = arm.worst.front().second;
    html += Formatted("<svg viewBox=\"0 0 %d %d\">\n", kPageWidth,
                      kRow * static_cast<int>(arm.worst.size()));
    int y = 0;
    for (const auto& [tensor, pct] : arm.worst) {
      const double width = kBar * pct / most;
      html += SvgText(kNames - 8, y + 14, tensor, "end") +
              SvgRect(kNames, y + 3, width, kRow - 6, i == 0 ? "#999" : ColorOf(i)) +
              SvgText(kNames + width + 6, y + 14, PercentText(pct)) + "\n";
      y += kRow;
    }
    html += "</svg>\n";
  }
  return html;
}

}  // namespace

std::string ChoicePage(const Measured& results, const ArmPlan& plan, const Verdict& verdict) {
  const std::string baseline = Html(results.arms.front().name);
  std::string html = PageHead("choose: " + plan.out, verdict.arm.empty() ? "No verdict"
                                                     : verdict.arm == results.arms.front().name
                                                         ? "Keep " + verdict.arm
                                                         : "Take " + verdict.arm);
  html += "<p class=\"verdict\">" + Html(verdict.text()) + "</p>\n";
  html += "<table><tr><th>arm</th><th>loss</th><th>minus " + baseline +
          "</th><th>sd</th><th>share</th><th>skips</th><th>bits</th><th>moved</th>"
          "<th>lost most</th></tr>\n" +
          ArmRows(results, verdict) + "</table>\n";
  html += "<p>" + Counted(plan.steps, "step") + ", " + Counted(std::ssize(plan.seeds), "seed") +
          "; a loss is the mean of the last " + std::to_string(results.window) +
          " steps. Bits are those of an operand's value in a matmul.</p>\n";
  html += "<h2>Loss minus that of " + baseline + ", by step</h2>\n" + Curves(results, plan).Svg();
  const std::string noise =
      std::isfinite(results.noise()) ? Formatted("%.2g", results.noise()) : "unknown";
  html += "<p>The gray band is twice what chance alone changes, " + noise + " (" +
          std::to_string(results.twins().size()) + " twins of " + baseline + ").</p>\n";
  html += "<h2>What lost most</h2>\n" + WorstBars(results);
  return html + kPageEnd;
}

}  // namespace ada::study
