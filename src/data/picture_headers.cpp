// Headers are read without the lock: two threads may read the same one, and the first answer stays.
#include "data/picture_headers.h"

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

}  // namespace ada::data
