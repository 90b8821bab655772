// What each recipe would lose of the operands in a run's newest dump, layer by layer.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "judge/operand_loss.h"
#include "study/recommend/recommendation.h"

namespace ada::study {

// The share of an operand's values other than zero that is lost, cut off ones among them, in
// percent.
double LostShare(const judge::RecipeRow& row);
// Whether `a` loses more than `b`, or as much with less SQNR.
bool IsWorse(const judge::RecipeRow& a, const judge::RecipeRow& b);

// A recipe with the operands that it rounds.
struct JudgedRecipe {
  JudgedFormat figures;  // `format` is the recipe's name; operands that it leaves as stored serve
  std::vector<judge::RecipeRow> rows;
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

// Numbers and words for a terminal of 80 columns.
void PrintRecipes(const RecipeVerdict& verdict, std::ostream& out);
// One JSON object.
void PrintRecipesJson(const std::string& folder, const RecipeVerdict& verdict, std::ostream& out);

}  // namespace ada::study
