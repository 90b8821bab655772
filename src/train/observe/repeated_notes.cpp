#include "train/observe/repeated_notes.h"

namespace ada::train {

void RepeatedNotes::Say(std::int64_t step, const std::string& message) {
  log_.Info("step " + std::to_string(step) + ": " + message);
}

void RepeatedNotes::Add(const std::string& kind, std::int64_t step, const std::string& message) {
  const auto [at, is_first] = windows_.try_emplace(kind);
  Window& window = at->second;
  if (is_first) {
    window = {step, kFirstWindow, 0, step, ""};
    Say(step, message);
    return;
  }
  ++window.counted;
  window.last_step = step;
  window.last = message;
}

// A window that ends with messages counted in it becomes twice as long: a message that comes with
// every step is told ever more rarely.
void RepeatedNotes::EndStep(std::int64_t step) {
  for (auto at = windows_.begin(); at != windows_.end();) {
    Window& window = at->second;
    if (step - window.begin < window.length) {
      ++at;
    } else if (window.counted == 0) {
      at = windows_.erase(at);
    } else {
      Say(window.last_step, window.last + " (" + std::to_string(window.counted) +
                                (window.counted == 1 ? " more time" : " more times") +
                                " since step " + std::to_string(window.begin) + ")");
      window = {step, 2 * window.length, 0, step, ""};
      ++at;
    }
  }
}

}  // namespace ada::train
