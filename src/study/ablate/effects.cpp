// What each ingredient does: differences of the trainings' losses by seed, how sure they are, and
// the sentence.
// Two trainings of the same seed differ by what chance does to both of them, which twins measure;
// an effect beyond others is a sum of four losses, and its chance is larger by the root of two.
#include <algorithm>
#include <cmath>

#include "io/text.h"
#include "study/ablate/ablation.h"

namespace ada::study {
namespace {

using Kind = Ingredient::Kind;

constexpr double kRootOfTwo = 1.4142135623730951;
constexpr std::size_t kMostNamed = 4;  // in the sentence, of each sort

class EffectFinder {
 public:
  EffectFinder(const Ablation& ablation, const Measured& measured)
      : ablation_(ablation), measured_(measured) {}

  Effects Run() {
    effects_.recipe_noise = measured_.arms[ablation_.recipe].noise;
    effects_.noise = std::fmax(measured_.noise(), effects_.recipe_noise);
    const std::vector<double>& recipe = Minus(ablation_.recipe);
    effects_.recipe = Of({{1, &recipe}}, 1);
    effects_.recipe_trouble = measured_.arms[ablation_.recipe].trouble;
    for (const Ablation::Member& member : ablation_.members) {
      Effect& effect = effects_.of.emplace_back();
      effect.ingredient = member.ingredient;
      effect.alone_trouble = measured_.arms[member.alone].trouble;
      effect.left_out_trouble = measured_.arms[member.left_out].trouble;
      const std::vector<double>& from = Minus(Start(member.ingredient.kind));
      effect.alone = Of({{1, &Minus(member.alone)}, {-1, &from}}, 1);
      effect.left_out = Of({{1, &recipe}, {-1, &Minus(member.left_out)}}, 1);
      effect.together =
          Of({{1, &recipe}, {-1, &Minus(member.left_out)}, {-1, &Minus(member.alone)}, {1, &from}},
             kRootOfTwo);
      const bool is_known = !measured_.arms[ablation_.recipe].ended_by_error &&
                            !measured_.arms[member.left_out].ended_by_error;
      effect.says = is_known ? Says(effect) : "unknown";
    }
    for (const Ablation::Pair& pair : ablation_.pairs) {
      const Ablation::Member& one = ablation_.members[pair.one];
      const Ablation::Member& other = ablation_.members[pair.other];
      PairEffect& effect = effects_.pairs.emplace_back();
      effect.one = one.ingredient.name;
      effect.other = other.ingredient.name;
      effect.beyond = Of({{1, &Minus(pair.both)},
                          {-1, &Minus(one.alone)},
                          {-1, &Minus(other.alone)},
                          {1, &Minus(Start(one.ingredient.kind))}},
                         kRootOfTwo);
    }
    effects_.sentence = Sentence();
    return std::move(effects_);
  }

 private:
  struct Term {
    double factor;
    const std::vector<double>* minus;
  };

  // What an ingredient alone is compared with.
  std::size_t Start(Kind kind) const { return kind == Kind::kRounding ? 0 : ablation_.bare; }
  // By seed; the baseline's are zeros.
  const std::vector<double>& Minus(std::size_t arm) const { return measured_.arms[arm].minus; }

  // noise_factor: how many times the deviation of twins chance makes of it.
  LossDifference Of(const std::vector<Term>& terms, double noise_factor) const {
    LossDifference difference;
    for (std::size_t seed = 0; seed < Minus(0).size(); ++seed) {
      double sum = 0;
      for (const Term& term : terms) sum += term.factor * (*term.minus)[seed];
      difference.by_seed.push_back(sum);
    }
    const std::size_t seeds = difference.by_seed.size();
    difference.mean = MeanOf(difference.by_seed);
    difference.deviation = DeviationOf(difference.by_seed);
    // Where both are the same arm there is nothing that chance could change.
    const bool is_zero = std::all_of(difference.by_seed.begin(), difference.by_seed.end(),
                                     [](double value) { return value == 0; });
    difference.distance = SurenessOf(difference.mean, difference.deviation, seeds,
                                     noise_factor * effects_.noise, measured_.twins().size());
    if (is_zero) difference.distance.t = 0;
    if (std::isfinite(difference.mean) && difference.distance.well())
      difference.sure = seeds >= kSeedsForWell ? "well" : "fairly";
    return difference;
  }

  // One word; leaving it out decides, since that is what one would do.
  std::string Says(const Effect& effect) const {
    const bool is_remedy = effect.ingredient.kind == Kind::kRemedy;
    const bool trains = effects_.recipe_trouble.empty();
    if (!trains) return effect.left_out_trouble.empty() ? "breaks" : "unknown";
    if (!effect.left_out_trouble.empty()) return "needed";
    if (!effect.left_out.is_sure()) return is_remedy ? "useless" : "free";
    if (effect.left_out.mean < 0) return "helps";
    return is_remedy ? "harms" : "costs";
  }

  // "dw.dy (+0.08), dx (+0.02)": the largest first.
  std::string List(const std::vector<std::string>& says) const {
    std::vector<const Effect*> named;
    for (const Effect& effect : effects_.of)
      if (Contains(says, effect.says)) named.push_back(&effect);
    std::stable_sort(named.begin(), named.end(), [](const Effect* a, const Effect* b) {
      return std::fabs(a->left_out.mean) > std::fabs(b->left_out.mean);
    });
    std::string text;
    for (std::size_t i = 0; i < std::min(named.size(), kMostNamed); ++i) {
      text += (i == 0 ? "" : ", ") + named[i]->ingredient.name;
      if (named[i]->left_out.is_sure()) text += Formatted(" (%+.2g)", named[i]->left_out.mean);
    }
    if (named.size() > kMostNamed)
      text += " and " + std::to_string(named.size() - kMostNamed) + " more";
    return text;
  }

  // Which ingredients do not add up: pairs, or where none is known each with all others.
  std::string Beyond() const {
    std::vector<std::pair<double, std::string>> found;
    for (const PairEffect& pair : effects_.pairs)
      if (pair.beyond.is_sure())
        found.emplace_back(pair.beyond.mean, pair.one + " with " + pair.other);
    if (found.empty())
      for (const Effect& effect : effects_.of)
        if (effect.together.is_sure())
          found.emplace_back(effect.together.mean, effect.ingredient.name + " with the others");
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
      return std::fabs(a.first) > std::fabs(b.first);
    });
    std::string text;
    for (std::size_t i = 0; i < std::min(found.size(), kMostNamed); ++i)
      text += (i == 0 ? "" : ", ") + found[i].second + Formatted(" (%+.2g)", found[i].first);
    return text;
  }

  std::string Sentence() const {
    const ArmResult& plain = measured_.arms.front();
    if (!plain.trouble.empty())
      return "Nothing is known: " + plain.name + " itself " + plain.fate() + " (" + plain.trouble +
             ").";
    std::string text = "The recipe ";
    if (!effects_.recipe_trouble.empty())
      text += std::string(measured_.arms[ablation_.recipe].fate()) + " (" +
              effects_.recipe_trouble + ")";
    else
      text += Formatted("ends %.2g %s ", std::fabs(effects_.recipe.mean),
                        effects_.recipe.mean < 0 ? "below" : "above") +
              plain.name +
              Formatted(" (%+.2f %%%s)", 100 * effects_.recipe.mean / plain.loss,
                        effects_.recipe.is_sure() ? "" : ", which chance may explain");
    struct Sort {
      const char* words;
      std::vector<std::string> says;
    };
    for (const Sort& sort :
         {Sort{"it trains without ", {"breaks"}},
          Sort{"to leave out, since the loss is lower without: ", {"harms"}},
          Sort{"it costs most: ", {"costs"}}, Sort{"it needs ", {"needed"}},
          Sort{"what helps: ", {"helps"}}, Sort{"no effect is seen of ", {"useless", "free"}}})
      if (const std::string names = List(sort.says); !names.empty())
        text += std::string("; ") + sort.words + names;
    if (const std::string beyond = Beyond(); !beyond.empty())
      text += "; more (+) or less (-) together than alone: " + beyond;
    return text + ".";
  }

  const Ablation& ablation_;
  const Measured& measured_;
  Effects effects_;
};

}  // namespace

Effects FindEffects(const Ablation& ablation, const Measured& measured) {
  return EffectFinder(ablation, measured).Run();
}

}  // namespace ada::study
