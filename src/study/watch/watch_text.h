// The picture that `watch` draws, as lines of text: pure.
#pragma once
#include <cstddef>
#include <deque>
#include <string>
#include <vector>

#include "study/watch/watch_state.h"

namespace ada::study {

struct Picture {
  std::size_t width = 100;  // columns of a line at most
  std::size_t height = 0;   // lines at most; 0: as many as it takes
  bool utf8 = false;        // block characters instead of ASCII
};

// The last `width` values of `pct`, one character each, on a logarithmic scale that is the same for
// all layers; blank for NaN. Shorter than `width` where there are fewer values.
std::string Sparkline(const std::deque<double>& pct, std::size_t width, bool utf8);

// Header lines and the table of layers; the layers that underflow most (mean of what the sparkline
// shows) where not all have room, in the order of the logs.
std::vector<std::string> DrawWatch(const WatchState& state, const Picture& picture);

}  // namespace ada::study
