// Headers are read without the lock: two threads may read the same one, and the first answer stays.
// Each call decodes one picture; where only a part is asked for, it decodes that part alone. The
// memory that decoding needs is found by headers only, in parallel. Warnings read a sample of
// headers, and each kind of surprise becomes one line with its count and the first picture that has
// it.
#include "data/picture_files.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

#include "data/images/picture.h"
#include "error.h"
#include "io/run_in_parallel.h"
#include "io/text.h"

namespace ada::data {

PictureNeeds PictureHeaders::Of(std::int64_t number, const std::string& path,
                                const PictureRules& rules) const {
  {
    const std::lock_guard lock(mutex_);
    const auto found = known_.find(number);
    if (found != known_.end()) return found->second;
  }
  const PictureNeeds needs = NeedsOfPictureFile(path, rules);
  Remember(number, needs);
  return needs;
}

void PictureHeaders::Remember(std::int64_t number, const PictureNeeds& needs) const {
  const std::lock_guard lock(mutex_);
  known_.emplace(number, needs);
}

void NameList::Add(std::string_view folder, std::string_view name) {
  ((text_ += folder) += '/') += name;
  ends_.push_back(text_.size());
}

std::string_view NameList::operator[](std::int64_t i) const {
  const auto at = static_cast<std::size_t>(i);
  const std::uint64_t begin = at == 0 ? 0 : ends_[at - 1];
  return std::string_view(text_).substr(begin, ends_[at] - begin);
}

bool IsPictureName(std::string_view name) {
  const std::string lower =
      LowerCase(name.substr(name.size() - std::min<std::size_t>(name.size(), 5)));
  constexpr std::array<std::string_view, 4> kEndings = {".jpg", ".jpeg", ".png", ".webp"};
  return std::any_of(kEndings.begin(), kEndings.end(),
                     [&](std::string_view ending) { return lower.ends_with(ending); });
}

std::string TitleOfFile(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);  // all of it without a folder
  const std::size_t dot = name.rfind('.');
  return std::string(dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot));
}

PictureFiles::PictureFiles(std::string prefix, NameList names, const PictureRules& rules)
    : prefix_(std::move(prefix)), names_(std::move(names)), rules_(rules) {}

std::string PictureFiles::NameOf(std::int64_t image) const {
  return prefix_ + std::string(names_[image]);
}

PictureNeeds PictureFiles::HeaderOf(std::int64_t image) const {
  return headers_.Of(image, NameOf(image), rules_);
}

Picture PictureFiles::Read(std::int64_t image, const ChoosePart& part) const {
  const std::string path = NameOf(image);
  const std::vector<std::uint8_t> file = ReadPictureFile(path);
  // The size is read from the file itself and not taken from `headers_`: the file may have been
  // replaced since, and callers that have labels for it compare the sizes.
  const PictureSize size = SizeOfPicture(file, path, rules_);
  const Box box = part(size);
  const bool whole = box == WholeOf(size);
  return whole ? DecodePicture(file, path, rules_) : DecodePicture(file, path, box, rules_);
}

namespace {

constexpr std::int64_t kMostLooked = 10'000, kPicturesOfTask = 64;

// Returns what decoding one image needs, including its label image; nothing if a header cannot be
// read. Each path returns a value of its own: GCC 12 forgets what a variable held before an
// assignment that throws.
PictureNeeds NeedsOf(const Dataset& dataset, std::int64_t image) {
  const std::int64_t number = dataset.NumberInFiles(image);
  try {
    PictureNeeds needs = dataset.store->HeaderOf(number);
    if (dataset.label_images) needs.bytes += dataset.label_images->DecodingBytesOf(number);
    return needs;
  } catch (const DataError&) {
    return {};
  }
}

// Returns the sum of the `pictures` largest needs of a split. A sample of headers bounds the time
// of large sets.
DecodingNeed NeedOfSplit(const Dataset& dataset, std::size_t pictures) {
  const std::int64_t looked = std::min(dataset.images(), kMostLooked);
  const auto image_at = [&](std::int64_t i) { return dataset.SpreadImage(i, looked); };
  std::vector<PictureNeeds> needs(static_cast<std::size_t>(looked));
  RunRangesInParallel(looked, kPicturesOfTask, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      needs[static_cast<std::size_t>(i)] = NeedsOf(dataset, image_at(i));
  });
  std::vector<std::int64_t> order(needs.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto need_of = [&](std::int64_t i) { return needs[static_cast<std::size_t>(i)]; };
  const std::size_t counted = std::min(pictures, order.size());
  const auto last = order.begin() + static_cast<std::ptrdiff_t>(counted);
  std::partial_sort(order.begin(), last, order.end(), [&](std::int64_t a, std::int64_t b) {
    return need_of(a).bytes > need_of(b).bytes;
  });
  DecodingNeed need;
  for (auto i = order.begin(); i != last; ++i) need.bytes += need_of(*i).bytes;
  if (need.bytes > 0)
    need.largest = dataset.store->NameOf(dataset.NumberInFiles(image_at(order.front()))) + " (" +
                   SizeText(need_of(order.front()).size) + ")";
  return need;
}

}  // namespace

DecodingNeed NeedOfDecoding(const Splits& splits, int workers) {
  DecodingNeed largest;
  if (!FactsOf(splits.train.name).decodes()) return largest;
  const auto pictures = static_cast<std::size_t>(std::max(workers, 1));
  for (const Dataset* split : {&splits.train, &splits.validation, &splits.test}) {
    if (split->images() == 0) continue;
    DecodingNeed need = NeedOfSplit(*split, pictures);
    if (need.bytes > largest.bytes) largest = std::move(need);
  }
  return largest;
}

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
      } catch (const DataError&) {  // decoding it will report its fault
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
