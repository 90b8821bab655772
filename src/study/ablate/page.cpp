// The page of an ablation: the sentence, and two bars for each ingredient.
#include <algorithm>
#include <cmath>

#include "io/text.h"
#include "study/ablate/ablation.h"
#include "study/output.h"

namespace ada::study {
namespace {

constexpr int kBarNames = 170, kRight = kPageWidth - 110, kRowHeight = 34, kTop = 8;
constexpr char kAlone[] = "#56b4e9", kLeftOut[] = "#d55e00";

// Values beyond a few times what the recipe costs end at the edge: one that fails has none.
class Bars {
 public:
  explicit Bars(const Effects& effects) : effects_(effects) {
    std::vector<double> sizes = {std::fabs(effects.recipe.mean)};
    for (const Effect& effect : effects.of)
      for (const LossDifference* one : {&effect.alone, &effect.left_out})
        sizes.push_back(std::fabs(one->mean));
    for (const double size : sizes)
      if (std::isfinite(size)) most_ = std::max(most_, size);
    noise_ = std::isfinite(effects.noise) ? 2 * effects.noise : 0;
    most_ = std::max({most_, noise_, 1e-12});
  }

  std::string Svg() const {
    const int height = kTop + kRowHeight * static_cast<int>(effects_.of.size()) + 8;
    std::string svg = Formatted("<svg viewBox=\"0 0 %d %d\" role=\"img\" ", kPageWidth, height) +
                      "aria-label=\"what each ingredient adds to the loss\">\n" +
                      SvgBand(X(-noise_), 0, X(noise_) - X(-noise_), height) + "\n" +
                      SvgLine(X(0), 0, X(0), height, "#555") + "\n";
    int y = kTop;
    for (const Effect& effect : effects_.of) {
      svg += SvgText(kBarNames - 8, y + 18, effect.ingredient.name, "end") +
             Bar(effect.alone, effect.alone_trouble, kAlone, y) +
             Bar(effect.left_out, effect.left_out_trouble, kLeftOut, y + 13) +
             SvgText(kRight + 34, y + 18, effect.says) + "\n";
      y += kRowHeight;
    }
    return svg + "</svg>\n";
  }

 private:
  double X(double value) const {
    const double middle = (kBarNames + kRight) / 2.0;
    return middle + (kRight - kBarNames - 60) / 2.0 * std::clamp(value / most_, -1.0, 1.0);
  }
  std::string Bar(const LossDifference& difference, const std::string& trouble, const char* color,
                  int y) const {
    if (!trouble.empty() || !std::isfinite(difference.mean))
      return SvgText(X(0) + 4, y + 10, "does not train");
    const double from = std::min(X(0), X(difference.mean)), to = std::max(X(0), X(difference.mean));
    return SvgRect(from, y, to - from, 11, color) +
           SvgText(to + 4, y + 10, Formatted("%+.2g", difference.mean));
  }

  const Effects& effects_;
  double most_ = 0, noise_ = 0;
};

std::string Texts(const Effects& effects) {
  std::string rows;
  for (const Effect& effect : effects.of)
    rows += "<tr><td>" + Html(effect.ingredient.name) + "</td><td>" + Html(effect.ingredient.text) +
            "</td></tr>\n";
  return "<table>" + rows + "</table>\n";
}

}  // namespace

std::string AblationPage(const Effects& effects, const Measured& measured, const ArmPlan& plan) {
  const std::string plain = Html(measured.arms.front().name);
  return PageHead("ablate: " + plan.out, "What each ingredient does") + "<p class=\"verdict\">" +
         Html(effects.sentence) +
         "</p>\n<p>What it adds to the loss: <span style=\"color:" + kAlone +
         "\">&#9632;</span> alone, over " + plain +
         " (of a remedy: over the recipe without remedies); <span style=\"color:" + kLeftOut +
         "\">&#9632;</span> the recipe over the recipe without it. " +
         Html(StepsText(measured, plan)) + ". The gray band is twice what chance changes.</p>\n" +
         Bars(effects).Svg() + Texts(effects) + kPageEnd;
}

}  // namespace ada::study
