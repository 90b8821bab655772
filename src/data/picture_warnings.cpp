// A sample of headers is read in parallel; each kind of surprise becomes one line with its count
// and the first picture that has it.
#include "data/picture_warnings.h"

#include <algorithm>

#include "core/error.h"
#include "core/run_in_parallel.h"
#include "core/text.h"
#include "data/images/surprises.h"

namespace ada::data {
namespace {

constexpr std::int64_t kMostHeaders = 10'000, kHeadersOfTask = 64;

}  // namespace

std::vector<std::string> WarningsOfPictures(const Dataset& dataset, const std::string& split) {
  if (dataset.images() == 0 || !FactsOf(dataset.name).decodes()) return {};
  const std::int64_t images = dataset.images(), looked = std::min(images, kMostHeaders);
  const auto number_of = [&](std::int64_t i) {
    return dataset.NumberInFiles(dataset.SpreadImage(i, looked));
  };
  std::vector<PictureTraits> traits(static_cast<std::size_t>(looked));
  RunRangesInParallel(looked, kHeadersOfTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      try {
        traits[static_cast<std::size_t>(i)] = dataset.store->HeaderOf(number_of(i)).traits;
      } catch (const DataError&) {  // whoever decodes it says what is wrong
      }
    }
  });
  const PictureRules rules = dataset.store->rules();
  std::vector<std::string> lines;
  for (const Surprise& surprise : Surprises()) {
    const auto holds = [&](const PictureTraits& of) { return surprise.holds(of, rules); };
    const std::int64_t count = std::count_if(traits.begin(), traits.end(), holds);
    if (count == 0) continue;
    const auto first = std::find_if(traits.begin(), traits.end(), holds) - traits.begin();
    lines.push_back("split " + split + ": " +
                    SurpriseText(surprise, count, dataset.store->NameOf(number_of(first)),
                                 looked < images
                                     ? " of " + std::to_string(looked) + " that were looked at"
                                     : ""));
  }
  return lines;
}

}  // namespace ada::data
