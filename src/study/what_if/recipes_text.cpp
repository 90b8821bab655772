// Says what recipes would lose: a table of recipes, one of layers by recipe, and a sentence.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/row_output.h"
#include "study/text_table.h"
#include "study/what_if/recipes.h"
#include "telemetry/block_figures.h"

namespace ada::study {
namespace {

using judge::RecipeRow;

constexpr std::size_t kMostLayersNamed = 4;

// A share in at most three characters: "0", ".02", ".3", "4.1", "23", "100".
std::string ShortPct(double pct) {
  if (pct == 0) return "0";
  if (pct >= 9.95) return Formatted("%.0f", pct);
  std::string text = Formatted(pct < 0.095 ? "%.2f" : "%.1f", pct);
  if (pct < 0.005) return "+0";
  return text.starts_with("0.") ? text.substr(1) : text;
}

// The row that loses most of all layers; null: the recipe rounds nothing here.
const RecipeRow* WorstRowOf(const JudgedRecipe& recipe) {
  const RecipeRow* worst = nullptr;
  for (const auto& [layer, at] : recipe.worst) {
    const RecipeRow& row = recipe.rows[at];
    if (worst == nullptr || IsWorse(row, *worst)) worst = &row;
  }
  return worst;
}

std::string WorstText(const JudgedRecipe& recipe) {
  const RecipeRow* worst = WorstRowOf(recipe);
  if (worst == nullptr) return "rounds nothing here";
  return Formatted("%.3g %% lost at most (", LostShare(*worst)) +
         Visible(worst->layer + "." + worst->tensor) + "), SQNR at least " +
         telemetry::DecibelText(recipe.figures.sqnr_db) + " dB (" +
         Visible(recipe.figures.sqnr_by) + ")";
}

void PrintByRecipe(const RecipeVerdict& verdict, std::ostream& out) {
  TextTable table({"", "recipe", "bits", "too much", "lost", "SQNR", "worst operand", "why"}, 2);
  table.LastToTheLeft();
  int number = 0;
  for (const JudgedRecipe& recipe : verdict.recipes) {
    const RecipeRow* worst = WorstRowOf(recipe);
    std::vector<std::string> fields = {std::to_string(++number), recipe.figures.format,
                                       Formatted("%.2f", recipe.figures.bits),
                                       std::to_string(recipe.figures.failing.size()) + "/" +
                                           std::to_string(recipe.figures.operands.size())};
    if (worst == nullptr)
      fields.insert(fields.end(), {"-", "-", "-", ""});
    else
      fields.insert(fields.end(),
                    {ShortPct(LostShare(*worst)), telemetry::DecibelText(worst->sqnr_db),
                     worst->layer + "." + worst->tensor, worst->cause});
    table.Row(std::move(fields));
  }
  table.Print(out);
}

void PrintByLayer(const RecipeVerdict& verdict, std::ostream& out) {
  std::vector<std::string> titles = {"layer"};
  for (std::size_t i = 1; i <= verdict.recipes.size(); ++i) titles.push_back(std::to_string(i));
  TextTable table(std::move(titles));
  for (const std::string& layer : verdict.layers) {
    std::vector<std::string> fields = {layer};
    for (const JudgedRecipe& recipe : verdict.recipes) {
      const auto worst = recipe.worst.find(layer);
      fields.push_back(
          worst == recipe.worst.end() ? "-" : ShortPct(LostShare(recipe.rows[worst->second])));
    }
    table.Row(std::move(fields));
  }
  table.Print(out);
}

}  // namespace

const JudgedRecipe* RecipeVerdict::serving() const {
  const auto found = std::find_if(recipes.begin(), recipes.end(), [](const JudgedRecipe& recipe) {
    return !recipe.rows.empty() && recipe.figures.failing.empty();
  });
  return found == recipes.end() ? nullptr : &*found;
}

std::string RecipeVerdict::Sentence() const {
  if (const JudgedRecipe* best = serving()) {
    std::string text =
        best->figures.format +
        Formatted(" (%.3g bits) is the narrowest that serves all operands: ", best->figures.bits) +
        WorstText(*best);
    if (best != recipes.data())
      text += "; " + recipes.front().figures.format + " would lose too much of " +
              std::to_string(recipes.front().figures.failing.size()) + " operands, " +
              WorstText(recipes.front());
    return text;
  }
  const auto fewest = std::min_element(recipes.begin(), recipes.end(),
                                       [](const JudgedRecipe& a, const JudgedRecipe& b) {
                                         return a.figures.failing.size() < b.figures.failing.size();
                                       });
  return "no recipe serves all operands; " + fewest->figures.format + " fails in the fewest, " +
         std::to_string(fewest->figures.failing.size()) + " of " +
         std::to_string(fewest->figures.operands.size()) + ": " + WorstText(*fewest) +
         "; precision.layers may leave their layers out (operands: none)";
}

void PrintRecipes(const RecipeVerdict& verdict, std::ostream& out) {
  PrintWrapped("what if " + Visible(verdict.dump) + " had been multiplied under each recipe: " +
                   Counted(std::ssize(verdict.layers), "layer") + "; lost: of the values other " +
                   "than zero, in %, cut off ones among them (+0: less than 0.005)",
               2, out, TextTable::kWidth);
  PrintByRecipe(verdict, out);
  PrintWrapped(
      "  too much: lose more than 0.1 %, or a gradient below 4.8 dB; why: lies too far below the "
      "largest value of its block, row or tensor; or scale rounding, scale floor, tensor scale, "
      "fixed scale, saturated",
      2, out, TextTable::kWidth);
  out << "worst operand of each layer, by recipe\n";
  PrintByLayer(verdict, out);
  if (!verdict.missing.empty())
    PrintWrapped("  not judged, as log.dump left them out: " +
                     Visible(FirstNames(verdict.missing, kMostLayersNamed)),
                 2, out, TextTable::kWidth);
  PrintWrapped(
      "  of one step; each operand by itself, to nearest where a training draws, a scale from "
      "earlier steps taken as this step's: how the loss follows, `choose` tells",
      2, out, TextTable::kWidth);
  PrintWrapped(verdict.Sentence(), 2, out, TextTable::kWidth);
}

void PrintRecipesJson(const std::string& folder, const RecipeVerdict& verdict, std::ostream& out) {
  OrderedJson page = CommandJson("what-if");
  page["run"] = folder;
  page["dump"] = verdict.dump;
  page["layers"] = verdict.layers;
  page["not_judged"] = verdict.missing;
  page["recipes"] = OrderedJson::array();
  page["rows"] = OrderedJson::array();
  for (const JudgedRecipe& recipe : verdict.recipes) {
    const JudgedFormat& figures = recipe.figures;
    OrderedJson& one = page["recipes"].emplace_back();
    one["recipe"] = figures.format;
    one["text"] = recipe.source;
    one["bits"] = figures.bits;
    one["operands"] = figures.operands.size();
    one["failing"] = figures.failing;
    one["lost_pct"] = figures.lost_pct;
    one["lost_by"] = figures.lost_by;
    one["saturated_pct"] = figures.saturated_pct;
    one["sqnr_db"] = figures.sqnr_db;
    one["sqnr_by"] = figures.sqnr_by;
    one["worst"] = OrderedJson::array();
    for (const std::string& layer : verdict.layers)
      if (const auto at = recipe.worst.find(layer); at != recipe.worst.end())
        one["worst"].push_back(RowJson(recipe.rows[at->second]));
    for (const RecipeRow& row : recipe.rows) page["rows"].push_back(RowJson(row));
  }
  const JudgedRecipe* best = verdict.serving();
  page["verdict"] = {{"recipe", best ? OrderedJson(best->figures.format) : OrderedJson()},
                     {"sentence", verdict.Sentence()}};
  PrintJson(page, out);
}

}  // namespace ada::study
