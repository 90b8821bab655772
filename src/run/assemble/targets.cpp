// Splits of a language model without a single target: training on them computes no gradient, and
// evaluating them is an error, which has to come before the first step.
#include <utility>

#include "error.h"
#include "run/assemble/assemble.h"

namespace ada::run {

std::vector<SplitWithoutTargets> FindSplitsWithoutTargets(const config::Config& config,
                                                          data::Splits splits) {
  std::vector<SplitWithoutTargets> found;
  if (!splits.train.tokens) return found;
  const config::DataConfig& d = config.data;
  data::Limit(splits.train, d.limit.train);
  data::Limit(splits.test, d.limit.test);
  const data::HeldBack held_back{d.validation, d.validation_share, config.seed};
  const bool holds_back = held_back.any() && !data::FactsOf(d.dataset).has_tokens();
  if (holds_back && held_back.Of(splits.train.images()) < splits.train.images())
    splits.validation = data::SplitOff(splits.train, held_back);
  for (const auto& [name, split] :
       {std::pair<const char*, const data::Dataset*>("train", &splits.train),
        {"validation", &splits.validation},
        {"test", &splits.test}}) {
    if (split->images() == 0) continue;
    const std::string why = split->tokens->WhyNoTarget();
    if (!why.empty())
      found.push_back({name, why + " in split " + name + "; expected a target or more"});
  }
  return found;
}

void RequireTargets(const config::Config& config, const data::DatasetInfo& info) {
  if (!info.found) return;
  for (const SplitWithoutTargets& split : FindSplitsWithoutTargets(config, *info.found))
    throw DataError(split.text);
}

}  // namespace ada::run
