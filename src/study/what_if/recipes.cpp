// what-if RUN: judges each layer of the newest dump under each recipe, and says what recipes would
// lose: a table of recipes, one of layers by recipe, and a sentence.
#include "config/recipes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/load.h"
#include "error.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "judge/operand_loss.h"
#include "judge/serving.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "study/what_if/dumped_matmuls.h"
#include "telemetry/block_figures.h"

namespace ada::study {
namespace {

// A row of the CSV: an operand that a recipe rounds.
struct RecipeRow : judge::OperandRow {
  std::string recipe;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return telemetry::Joined(std::to_array<telemetry::Column<RecipeRow>>({
                                 {"recipe", &RecipeRow::recipe},
                                 {"layer", &RecipeRow::layer},
                                 {"tensor", &RecipeRow::tensor},
                                 {"format", &RecipeRow::format},
                                 {"scale", &RecipeRow::scale, kExact | kPlain},
                                 {"cause", &RecipeRow::cause},
                             }),
                             telemetry::BlockColumns<RecipeRow>());
  }
};

// A recipe with the operands that it rounds.
struct JudgedRecipe {
  judge::JudgedFormat
      figures;  // `format` is the recipe's name; operands that it leaves as stored serve
  std::vector<RecipeRow> rows;
  std::map<std::string, std::size_t> worst;  // by layer: the row that loses most
  std::string source;                        // what it rounds, and whose it is
};

struct RecipeVerdict {
  std::string dump;
  std::vector<std::string> layers;      // judged, in the order of the network
  std::vector<std::string> missing;     // with weights, and not in the dump
  std::vector<JudgedRecipe> recipes;    // the narrowest first, of those the one with more SQNR
  const JudgedRecipe* serving() const;  // the first without an operand that loses too much
  std::string Sentence() const;
};

struct Recipe {
  std::string name, source;
  graph::Precision precision;
};

std::vector<Recipe> RecipesOf(const std::vector<std::string>& asked) {
  std::vector<std::string> names = asked, known;
  std::map<std::string, std::string> sources;
  for (const config::RecipeLine& line : config::Recipes()) {
    known.push_back(line.name);
    sources[line.name] = line.text;
  }
  if (names.empty()) names = known;
  std::vector<Recipe> recipes;
  for (const std::string& name : names) {
    if (!sources.contains(name))
      throw ConfigError("--recipe " + name + ": expected a recipe (`ada-train recipes`)" +
                        DidYouMean(name, known));
    const config::Loaded loaded = config::LoadPrecision({{"precision.recipe", name}});
    recipes.push_back(
        {name, sources[name], graph::ResolvePrecision(loaded.config.precision, false)});
  }
  return recipes;
}

// Bits and values of operands, of which those that a recipe leaves are taken as stored.
struct Width {
  double bits = 0, values = 0;
  void Add(double each, double count) { bits += each * count, values += count; }
};

void AddLayer(const judge::MatmulTensors& layer, const Recipe& recipe, bool spared, Width& width,
              JudgedRecipe& to) {
  const graph::LayerOperands rules = recipe.precision.operands_of(layer.layer, spared);
  for (std::size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!layer.has_dx && (operand == Operand::kDxDy || operand == Operand::kDxW)) continue;
    const judge::StoredTensor& tensor = layer.Of(operand);
    const graph::OperandRule& rule = rules.Of(operand);
    const double stored = tensor.bf16 ? 16 : 32;
    width.Add(rule.rounds ? judge::BitsOf(rule.named()) : stored,
              static_cast<double>(tensor.values.size()));
    const std::optional<judge::OperandRow> judged = judge::JudgeOperand(layer, operand, rule);
    if (!judged) continue;
    const RecipeRow row{*judged, recipe.name};
    to.figures.Add(row, row.layer, row.tensor, judge::kUnderflowTarget);
    const auto [at, is_first] = to.worst.try_emplace(row.layer, to.rows.size());
    if (!is_first && judge::IsWorse(row, to.rows[at->second])) at->second = to.rows.size();
    to.rows.push_back(row);
  }
}

// Where a layer stands among those with weights.
bool IsSpared(const std::vector<std::string>& products, const std::string& layer,
              const config::SparedConfig& spared) {
  const auto at = std::find(products.begin(), products.end(), layer) - products.begin();
  if (at == std::ssize(products)) return false;
  return at < spared.first || at >= std::ssize(products) - spared.last;
}

RecipeVerdict Judge(const WhatIfRecipesOptions& options) {
  const config::Config run = ReadRunConfig(options.folder);
  const std::vector<Recipe> recipes = RecipesOf(options.recipes);
  RecipeVerdict verdict;
  verdict.dump = NewestDump(options.folder);
  const SafetensorsFile file = SafetensorsFile::Open(verdict.dump);
  verdict.layers = DumpedMatmuls(file);
  const std::vector<std::string> products = judge::JudgedLayers(run.model, verdict.layers);
  std::vector<Width> widths(recipes.size());
  verdict.recipes.resize(recipes.size());
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    verdict.recipes[i].figures.format = recipes[i].name;
    verdict.recipes[i].source = recipes[i].source;
  }
  EachDumpedMatmul(file, [&](const judge::MatmulTensors& layer) {
    for (std::size_t i = 0; i < recipes.size(); ++i)
      AddLayer(layer, recipes[i], IsSpared(products, layer.layer, recipes[i].precision.spared),
               widths[i], verdict.recipes[i]);
  });
  for (std::size_t i = 0; i < recipes.size(); ++i)
    if (widths[i].values > 0) verdict.recipes[i].figures.bits = widths[i].bits / widths[i].values;
  const auto place = [&](const std::string& layer) {
    return std::find(products.begin(), products.end(), layer);
  };
  std::stable_sort(verdict.layers.begin(), verdict.layers.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
  for (const std::string& layer : products)
    if (!Contains(verdict.layers, layer)) verdict.missing.push_back(layer);
  std::stable_sort(verdict.recipes.begin(), verdict.recipes.end(),
                   [](const JudgedRecipe& a, const JudgedRecipe& b) {
                     if (a.figures.bits != b.figures.bits) return a.figures.bits < b.figures.bits;
                     return a.figures.sqnr_db > b.figures.sqnr_db;
                   });
  return verdict;
}

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
    if (worst == nullptr || judge::IsWorse(row, *worst)) worst = &row;
  }
  return worst;
}

std::string WorstText(const JudgedRecipe& recipe) {
  const RecipeRow* worst = WorstRowOf(recipe);
  if (worst == nullptr) return "rounds nothing here";
  return Formatted("%.3g %% lost at most (", judge::LostPct(*worst)) +
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
                    {ShortPct(judge::LostPct(*worst)), telemetry::DecibelText(worst->sqnr_db),
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
          worst == recipe.worst.end() ? "-" : ShortPct(judge::LostPct(recipe.rows[worst->second])));
    }
    table.Row(std::move(fields));
  }
  table.Print(out);
}

const JudgedRecipe* RecipeVerdict::serving() const {
  const auto found = std::find_if(recipes.begin(), recipes.end(), [](const JudgedRecipe& recipe) {
    return !recipe.figures.operands.empty() && recipe.figures.failing.empty();
  });
  return found == recipes.end() ? nullptr : &*found;
}

// "; not judged, since they held inf or NaN: 2 operands (b.dx.dy, b.dw.dy)".
std::string NotJudgedText(const std::vector<JudgedRecipe>& recipes) {
  std::set<std::string> broken;
  for (const JudgedRecipe& recipe : recipes)
    std::set_difference(recipe.figures.seen.begin(), recipe.figures.seen.end(),
                        recipe.figures.operands.begin(), recipe.figures.operands.end(),
                        std::inserter(broken, broken.end()));
  if (broken.empty()) return "";
  return "; not judged, since they held inf or NaN: " + Counted(std::ssize(broken), "operand") +
         " (" + Visible(FirstNames({broken.begin(), broken.end()}, kMostLayersNamed)) + ")";
}

std::string RecipeVerdict::Sentence() const {
  if (std::all_of(recipes.begin(), recipes.end(),
                  [](const JudgedRecipe& recipe) { return recipe.figures.operands.empty(); }))
    return "no recipe can be judged" + NotJudgedText(recipes);
  const std::string not_judged = NotJudgedText(recipes);
  if (const JudgedRecipe* best = serving()) {
    std::string text =
        best->figures.format +
        Formatted(" (%.3g bits) is the narrowest that serves all operands", best->figures.bits) +
        (not_judged.empty() ? ": " : " that can be judged: ") + WorstText(*best);
    if (!recipes.front().figures.failing.empty())
      text += "; " + recipes.front().figures.format + " would lose too much of " +
              std::to_string(recipes.front().figures.failing.size()) + " operands, " +
              WorstText(recipes.front());
    return text + not_judged;
  }
  // One that could not be judged fails in none.
  const auto key = [](const JudgedRecipe& recipe) {
    return std::pair(recipe.figures.operands.empty(), recipe.figures.failing.size());
  };
  const auto fewest = std::min_element(
      recipes.begin(), recipes.end(),
      [&](const JudgedRecipe& a, const JudgedRecipe& b) { return key(a) < key(b); });
  return "no recipe serves all operands; " + fewest->figures.format + " fails in the fewest, " +
         std::to_string(fewest->figures.failing.size()) + " of " +
         std::to_string(fewest->figures.operands.size()) + ": " + WorstText(*fewest) +
         "; precision.layers may leave their layers out (operands: none)" + not_judged;
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
    const judge::JudgedFormat& figures = recipe.figures;
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

}  // namespace

void WhatIfRecipes(const WhatIfRecipesOptions& options, std::ostream& out, std::ostream& notes) {
  const RecipeVerdict verdict = Judge(options);
  if (options.view == View::kJson) return PrintRecipesJson(options.folder, verdict, out);
  if (options.view == View::kTable) return PrintRecipes(verdict, out);
  PrintCsvHeader<RecipeRow>(out);
  for (const JudgedRecipe& recipe : verdict.recipes)
    for (const RecipeRow& row : recipe.rows) PrintCsvRow(row, out);
  notes << verdict.Sentence() << '\n';
}

}  // namespace ada::study
