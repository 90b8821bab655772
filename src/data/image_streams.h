// Random numbers of what becomes of an image.
#pragma once
#include <cstdint>

#include "core/random.h"

namespace ada::data {

// Those of one image of the data set in one epoch, for one purpose (StreamId of its name). Each
// purpose draws from a stream of its own, so that a change which is switched on or off, or draws
// more numbers, leaves the choices of the others as they are.
inline RandomStream StreamFor(std::uint64_t seed, std::uint64_t purpose, std::int64_t epoch,
                              std::int64_t image) {
  const auto words = Philox(
      seed, purpose, static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(image));
  return RandomStream(seed, static_cast<std::uint64_t>(words[0]) << 32 | words[1]);
}

}  // namespace ada::data
