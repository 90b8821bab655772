// ablate: takes a recipe apart, and says what each ingredient does to the loss, as a table,
// ablate.csv, JSON and a page.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/ablate/ablation.h"
#include "study/output.h"
#include "study/text_table.h"
#include "telemetry/csv.h"

namespace ada::study {
namespace {

// "+0.0123", with a mark where chance may explain it.
std::string EffectText(const LossDifference& difference, const std::string& trouble) {
  if (!trouble.empty()) return "fails";
  if (!std::isfinite(difference.mean)) return "-";
  if (difference.mean == 0) return "0  ";
  return Formatted("%+.3g", difference.mean) + (difference.is_sure() ? "  " : " ?");
}

OrderedJson DifferenceJson(const LossDifference& difference) {
  OrderedJson json;
  json["mean"] = difference.mean;
  json["by_seed"] = difference.by_seed;
  json["deviation"] = difference.deviation;
  json["error"] = difference.distance.error;
  json["sure"] = difference.sure;
  return json;
}

const char* KindText(const Ingredient& ingredient) {
  return ingredient.kind == Ingredient::Kind::kRounding ? "rounding" : "remedy";
}

void PrintAblation(const Effects& effects, const Measured& measured, const ArmPlan& plan,
                   std::ostream& out) {
  const std::string plain = Visible(measured.arms.front().name);
  PrintWrapped(StepsText(measured, plan) +
                   "; a number is what the ingredient adds to the loss, ?: " +
                   "chance may explain it; alone: over " + plain +
                   ", of a remedy over the recipe without remedies; left out: the recipe over the "
                   "recipe without it; beyond: the second minus the first",
               2, out);
  TextTable table({"ingredient", "alone", "left out", "sd", "beyond", "says"});
  table.LastToTheLeft();
  for (const Effect& effect : effects.of)
    table.Row(
        {effect.ingredient.name, EffectText(effect.alone, effect.alone_trouble),
         EffectText(effect.left_out, effect.left_out_trouble),
         std::isnan(effect.left_out.deviation) ? "-" : Formatted("%.2g", effect.left_out.deviation),
         EffectText(effect.together, ""), effect.says});
  table.Row(
      {"all", EffectText(effects.recipe, effects.recipe_trouble), "",
       std::isnan(effects.recipe.deviation) ? "-" : Formatted("%.2g", effects.recipe.deviation), "",
       "the recipe over " + plain});
  table.Print(out);
  PrintWrapped(
      NoiseText(measured) + Formatted("; of the recipe's twins: %.2g", effects.recipe_noise), 2,
      out);
  for (const PairEffect& pair : effects.pairs)
    if (pair.beyond.is_sure())
      PrintWrapped(Visible(pair.one + " and " + pair.other) + " together: " +
                       Formatted("%+.3g beyond the sum of both alone (%s sure)", pair.beyond.mean,
                                 pair.beyond.sure),
                   2, out);
  out << '\n';
  PrintWrapped(Visible(effects.sentence), 2, out);
  PrintWrapped(
      "files: " + Visible(plan.out) +
          " (ablate.csv, trainings.csv; the runs of all arms, for report, compare, advise)",
      2, out);
}

void PrintAblationJson(const Effects& effects, const Measured& measured, const ArmPlan& plan,
                       std::ostream& out) {
  OrderedJson json = ArmsJson(measured, plan);
  json["recipe_noise"] = effects.recipe_noise;
  json["recipe"] = DifferenceJson(effects.recipe);
  json["ingredients"] = OrderedJson::array();
  for (const Effect& effect : effects.of) {
    OrderedJson& one = json["ingredients"].emplace_back();
    one["ingredient"] = effect.ingredient.name;
    one["kind"] = KindText(effect.ingredient);
    one["text"] = effect.ingredient.text;
    one["says"] = effect.says;
    one["alone"] = DifferenceJson(effect.alone);
    one["alone_trouble"] = effect.alone_trouble;
    one["left_out"] = DifferenceJson(effect.left_out);
    one["left_out_trouble"] = effect.left_out_trouble;
    one["beyond"] = DifferenceJson(effect.together);
  }
  json["pairs"] = OrderedJson::array();
  for (const PairEffect& pair : effects.pairs)
    json["pairs"].push_back(
        {{"one", pair.one}, {"other", pair.other}, {"beyond", DifferenceJson(pair.beyond)}});
  json["sentence"] = effects.sentence;
  PrintJson(json, out);
}

// ablate.csv, as a text.
std::string AblationCsv(const Effects& effects) {
  std::string text =
      "ingredient,kind,says,alone,alone_deviation,alone_sure,left_out,left_out_deviation,"
      "left_out_sure,beyond,beyond_error,beyond_sure,trouble,text\n";
  for (const Effect& effect : effects.of) {
    telemetry::CsvRow row;
    row.Text(effect.ingredient.name).Text(KindText(effect.ingredient)).Text(effect.says);
    row.Number(effect.alone.mean).Number(effect.alone.deviation).Text(effect.alone.sure);
    row.Number(effect.left_out.mean).Number(effect.left_out.deviation);
    row.Text(effect.left_out.sure);
    row.Number(effect.together.mean).Number(effect.together.distance.error);
    row.Text(effect.together.sure);
    row.Text(effect.left_out_trouble.empty() ? effect.alone_trouble : effect.left_out_trouble);
    text += row.Text(effect.ingredient.text).text() + "\n";
  }
  for (const PairEffect& pair : effects.pairs) {
    telemetry::CsvRow row;
    row.Text(pair.one + "+" + pair.other).Text("pair").Text("");
    for (int empty = 0; empty < 2; ++empty) row.Number(NAN).Number(NAN).Text("");
    row.Number(pair.beyond.mean).Number(pair.beyond.distance.error).Text(pair.beyond.sure);
    text += row.Text("").Text("loss with both beyond the sum of both alone").text() + "\n";
  }
  return text;
}

// --- The page ---

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

}  // namespace

// Files are written before anything is printed, so that a closed pipe costs none of them.
int Ablate(const AblateOptions& options, std::ostream& out, telemetry::Log& log) {
  const Ablation ablation = PlanAblation(options);
  ArmPlan plan =
      PlanTrainings({"ablate", "ablations", ablation.arms, options, {0, ablation.recipe}}, log);
  const int signal = RunTrainings(plan, log);
  if (signal != 0) return 128 + signal;
  const Measured measured = Measure(plan);
  const Effects effects = FindEffects(ablation, measured);
  WriteFileAtomically(plan.out + "/ablate.csv", AblationCsv(effects));
  WriteFileAtomically(plan.out + "/trainings.csv", TrainingsCsv(measured));
  if (options.html)
    WriteFileAtomically(plan.out + "/ablate.html", AblationPage(effects, measured, plan));
  if (options.json)
    PrintAblationJson(effects, measured, plan, out);
  else
    PrintAblation(effects, measured, plan, out);
  return ExitCodeOf(plan);
}

}  // namespace ada::study
