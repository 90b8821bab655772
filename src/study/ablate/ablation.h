// The parts of `ablate`: the ingredients of a recipe, the trainings that tell what each does, and
// what they say.
// ablate.cpp calls them in this order: IngredientsOf, PlanAblation, then the engine of arms
// (study/arms), FindEffects, and a function that prints.
#pragma once
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"
#include "study/arms/arms.h"
#include "study/commands.h"

namespace ada::study {

// What an ablation changes of a configuration: its precision, and whether its policy stays.
struct AblatedRecipe {
  config::PrecisionConfig precision;
  bool has_policy = false;  // of `scaling`, other than none
};

// A part of a recipe that can be left out.
struct Ingredient {
  // kRounding loses values: what a product takes, how its sums are made, what is stored. kRemedy
  // makes up for losses: stochastic rounding, a transform, scales, layers that are spared.
  enum class Kind { kRounding, kRemedy };
  std::string name;  // "dw", "dw.dy", "hadamard"
  std::string text;  // what it is, in a few words
  Kind kind = Kind::kRounding;
  std::vector<std::string> parts;  // kRounding: the smallest parts of which it is made
};
// All of a recipe, products before their operands. Empty: it rounds nothing beyond bf16.
std::vector<Ingredient> IngredientsOf(const AblatedRecipe& recipe);
// The recipe without any ingredient: stored in bf16, or fp32 where it stores nothing narrower.
AblatedRecipe Plain(const AblatedRecipe& recipe);
AblatedRecipe WithoutIngredient(const AblatedRecipe& recipe, const Ingredient& ingredient);
// The rounding ones alone, with every remedy; or the remedies alone, with every rounding.
AblatedRecipe OnlyIngredients(const AblatedRecipe& recipe, const std::vector<Ingredient>& kept);

// Which arm has which part: indices of ArmPlan::arms. Arms whose configurations are the same are
// one.
struct Ablation {
  struct Member {
    Ingredient ingredient;
    std::size_t alone = 0, left_out = 0;
  };
  struct Pair {                                // of members of one kind
    std::size_t one = 0, other = 0, both = 0;  // members; the arm that has both
  };
  std::vector<Arm> arms;  // the plain one first, then the recipe
  std::vector<Member> members;
  std::vector<Pair> pairs;
  std::size_t recipe = 0, bare = 0;  // bare: all roundings, no remedy
};
// Throws ConfigError where the configuration has no ingredient, and for a part that it does not
// have.
Ablation PlanAblation(const AblateOptions& options);

// Something in units of the loss, over the seeds.
struct LossDifference {
  std::vector<double> by_seed;
  double mean = NAN, deviation = NAN;
  Sureness distance;
  const char* sure = "no";  // that it is not zero: well, fairly (one or two seeds), no
  bool is_sure() const { return std::string_view(sure) != "no"; }
};
// What an ingredient adds to the loss; below zero: it takes off.
struct Effect {
  Ingredient ingredient;
  std::string alone_trouble, left_out_trouble;  // why that arm does not train
  // `alone` is the loss with it minus that of the plain format, or, of a remedy, that of the recipe
  // without remedies. `left_out` is the loss of the recipe minus that of the recipe without it.
  // `together` is left_out minus alone: what it does with the others beyond what it does alone.
  LossDifference alone, left_out, together;
  std::string says;  // costs, free, helps, harms, useless, needed, breaks, unknown
};
struct PairEffect {
  std::string one, other;
  LossDifference beyond;  // loss with both, beyond the sum of both alone
};
struct Effects {
  std::vector<Effect> of;
  std::vector<PairEffect> pairs;
  LossDifference recipe;  // minus the plain one
  // By how much chance moves a loss: of twins of the plain one or of the recipe, the larger.
  double noise = NAN, recipe_noise = NAN;
  std::string recipe_trouble;  // why the recipe does not train
  std::string sentence;
};
Effects FindEffects(const Ablation& ablation, const Measured& measured);

}  // namespace ada::study
