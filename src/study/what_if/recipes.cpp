// what-if RUN: reads the newest dump, and judges each layer under each recipe.
#include "study/what_if/recipes.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "config/load.h"
#include "config/recipes.h"
#include "error.h"
#include "io/text.h"
#include "study/assign/assigner.h"
#include "study/commands.h"
#include "study/run_files.h"
#include "study/what_if/dumped_matmuls.h"

namespace ada::study {
namespace {

using judge::RecipeRow;

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
    if (!sources.contains(name)) {
      const std::string nearest = NearestName(name, known);
      throw ConfigError("--recipe " + name + ": expected a recipe (`ada-train recipes`)" +
                        (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
    }
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

void AddLayer(const judge::MatmulTensors& layer, const Recipe& recipe, bool spared, double target,
              Width& width, JudgedRecipe& to) {
  const graph::LayerOperands rules = recipe.precision.operands_of(layer.layer, spared);
  for (std::size_t i = 0; i < kOperands; ++i) {
    const auto operand = static_cast<Operand>(i);
    if (!layer.has_dx && (operand == Operand::kDxDy || operand == Operand::kDxW)) continue;
    const judge::StoredTensor& tensor = layer.Of(operand);
    const graph::OperandRule& rule = rules.Of(operand);
    const double stored = tensor.bf16 ? 16 : 32;
    width.Add(rule.rounds ? BitsOf(rule.named()) : stored,
              static_cast<double>(tensor.values.size()));
  }
  for (RecipeRow& row : judge::JudgeRecipe(layer, rules, {})) {
    row.recipe = recipe.name;
    AddJudged(row, row.layer, row.tensor, target, to.figures);
    const auto [at, is_first] = to.worst.try_emplace(row.layer, to.rows.size());
    if (!is_first && IsWorse(row, to.rows[at->second])) at->second = to.rows.size();
    to.rows.push_back(std::move(row));
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
  const std::vector<std::string> products = judge::ProductsOf(run.model, verdict.layers);
  std::vector<Width> widths(recipes.size());
  verdict.recipes.resize(recipes.size());
  for (std::size_t i = 0; i < recipes.size(); ++i) {
    verdict.recipes[i].figures.format = recipes[i].name;
    verdict.recipes[i].source = recipes[i].source;
  }
  const double target = RecommendOptions().underflow_target;
  EachDumpedMatmul(file, [&](const judge::MatmulTensors& layer) {
    for (std::size_t i = 0; i < recipes.size(); ++i)
      AddLayer(layer, recipes[i], IsSpared(products, layer.layer, recipes[i].precision.spared),
               target, widths[i], verdict.recipes[i]);
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

}  // namespace

double LostShare(const RecipeRow& row) {
  const double pct = std::isnan(row.lost_pct_nonzero) ? 0 : row.lost_pct_nonzero;
  return pct + SaturatedPct(row);
}

bool IsWorse(const RecipeRow& a, const RecipeRow& b) {
  return LostShare(a) != LostShare(b) ? LostShare(a) > LostShare(b) : a.sqnr_db < b.sqnr_db;
}

void WhatIfRecipes(const WhatIfRecipesOptions& options, std::ostream& out, std::ostream& notes) {
  const RecipeVerdict verdict = Judge(options);
  if (options.view == View::kJson) return PrintRecipesJson(options.folder, verdict, out);
  if (options.view == View::kTable) return PrintRecipes(verdict, out);
  out << telemetry::Header<RecipeRow>() << '\n';
  for (const JudgedRecipe& recipe : verdict.recipes)
    for (const RecipeRow& row : recipe.rows) out << telemetry::FieldsOf(row).text() << '\n';
  notes << verdict.Sentence() << '\n';
}

}  // namespace ada::study
