// What the headers of many picture files say: each is read once, whoever asks first. A run asks for
// them when it reckons its memory, when it warns of surprises, and where label images are turned.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "data/images/picture.h"

namespace ada::data {

// Safe from several threads.
class PictureHeaders {
 public:
  // Returns what `NeedsOfPictureFile(path, rules)` returned when it was first asked of the picture
  // with this number; throws what that throws, and then asks again the next time.
  PictureNeeds Of(std::int64_t number, const std::string& path, const PictureRules& rules) const;
  // Takes what is known of a picture already.
  void Remember(std::int64_t number, const PictureNeeds& needs) const;

 private:
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::int64_t, PictureNeeds> known_;
};

}  // namespace ada::data
