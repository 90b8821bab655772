// The arms of an ablation: the recipe, the plain format, and each ingredient alone and left out.
#include <algorithm>
#include <map>

#include "error.h"
#include "io/text.h"
#include "study/ablate/ablation.h"

namespace ada::study {
namespace {

constexpr char kNoPolicy[] = "{policy: none}";

// Makes each configuration one arm, whatever leads to it.
class ArmMaker {
 public:
  ArmMaker(const AblateOptions& options, std::vector<Arm>& arms) : arms_(arms) {
    config::Overrides none = {{"scaling", kNoPolicy}};
    with_policy_ = config::Load(options.config, options.keys).config;
    none.insert(none.end(), options.keys.begin(), options.keys.end());
    std::erase_if(none,
                  [](const config::Override& key) { return key.first.starts_with("scaling."); });
    without_ = config::Load(options.config, none).config;
    config::FillDefaults(with_policy_);
    config::FillDefaults(without_);
  }
  AblatedRecipe recipe() const {
    return {with_policy_.precision, with_policy_.scaling.policy != without_.scaling.policy};
  }

  std::size_t Add(const std::string& name, const AblatedRecipe& recipe) {
    const config::Config config = ConfigOf(recipe);
    const auto [at, is_new] = by_text_.emplace(config::ToYaml(config), arms_.size());
    if (!is_new) return at->second;
    Arm& arm = arms_.emplace_back();
    arm.name = name;
    arm.folder = FolderWord(name);
    arm.precision = config.precision;
    if (!recipe.has_policy) arm.keys.emplace_back("scaling", kNoPolicy);
    return at->second;
  }
  // Whether there is an arm of this configuration.
  bool Has(const AblatedRecipe& recipe) const {
    return by_text_.contains(config::ToYaml(ConfigOf(recipe)));
  }

 private:
  config::Config ConfigOf(const AblatedRecipe& recipe) const {
    config::Config config = recipe.has_policy ? with_policy_ : without_;
    config.precision = recipe.precision;
    config.precision.recipe = config::PrecisionRecipe::kNone;
    return config;
  }

  std::vector<Arm>& arms_;
  config::Config with_policy_, without_;
  std::map<std::string, std::size_t> by_text_;
};

// Those that were asked for.
std::vector<Ingredient> Chosen(const std::vector<Ingredient>& all, const AblateOptions& options) {
  if (all.empty())
    throw ConfigError(options.config +
                      ": precision: nothing to take apart, since nothing is rounded beyond bf16; "
                      "expected a recipe, operands, accumulate or a narrower format");
  if (options.parts.empty()) return all;
  std::vector<std::string> names;
  for (const Ingredient& one : all) names.push_back(one.name);
  std::vector<Ingredient> chosen;
  for (const std::string& part : options.parts) {
    const auto at = std::find(names.begin(), names.end(), part);
    if (at == names.end()) {
      std::string known;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
      throw ConfigError("--parts " + part + ": expected ingredients of " + options.config + ": " +
                        known);
    }
    if (std::count(options.parts.begin(), options.parts.end(), part) > 1)
      throw ConfigError("--parts: " + part + " is named twice; expected each ingredient once");
    chosen.push_back(all[static_cast<std::size_t>(at - names.begin())]);
  }
  return chosen;
}

// Whether one is a part of the other, so that having both is having one.
bool Overlap(const Ingredient& one, const Ingredient& other) {
  return std::any_of(one.parts.begin(), one.parts.end(),
                     [&](const std::string& part) { return Contains(other.parts, part); });
}

bool StoresFp32(const config::PrecisionConfig& precision) {
  const auto is_fp32 = [&](const std::optional<NumberFormat>& role) {
    return role.value_or(precision.format) == kFp32;
  };
  return is_fp32(precision.activations) && is_fp32(precision.weights) &&
         is_fp32(precision.gradients);
}

}  // namespace

Ablation PlanAblation(const AblateOptions& options) {
  Ablation ablation;
  ArmMaker maker(options, ablation.arms);
  const AblatedRecipe recipe = maker.recipe();
  const std::vector<Ingredient> all = IngredientsOf(recipe);
  const std::vector<Ingredient> chosen = Chosen(all, options);
  const AblatedRecipe plain = Plain(recipe);
  maker.Add(StoresFp32(plain.precision) ? "fp32" : "bf16", plain);
  ablation.recipe = maker.Add("recipe", recipe);
  const auto is_remedy = [](const Ingredient& one) {
    return one.kind == Ingredient::Kind::kRemedy;
  };
  ablation.bare = ablation.recipe;
  if (std::any_of(chosen.begin(), chosen.end(), is_remedy))
    ablation.bare = maker.Add("no-remedies", OnlyIngredients(recipe, {}));
  for (const Ingredient& one : chosen) {
    Ablation::Member& member = ablation.members.emplace_back();
    member.ingredient = one;
    member.left_out = maker.Add("no-" + one.name, WithoutIngredient(recipe, one));
    member.alone = maker.Add("only-" + one.name, OnlyIngredients(recipe, {one}));
  }
  // Two at a time: those whose arm is there anyway, or all.
  for (std::size_t i = 0; i < ablation.members.size(); ++i)
    for (std::size_t j = i + 1; j < ablation.members.size(); ++j) {
      const Ingredient& one = ablation.members[i].ingredient;
      const Ingredient& other = ablation.members[j].ingredient;
      if (one.kind != other.kind || Overlap(one, other)) continue;
      const AblatedRecipe both = OnlyIngredients(recipe, {one, other});
      if (!options.pairs && !maker.Has(both)) continue;
      ablation.pairs.push_back({i, j, maker.Add("only-" + one.name + "+" + other.name, both)});
    }
  return ablation;
}

}  // namespace ada::study
