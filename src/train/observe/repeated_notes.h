// Messages of the console that may come with every step: each is said once, then counted.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "telemetry/log.h"

namespace ada::train {

// A message is said as it comes, and opens a window of kFirstWindow steps. Those of the same kind
// within the window are counted; at its end the last of them is said with the count, and a window
// twice as long opens. A window without any closes: the next message is said as it comes.
// Owned by StepEvents. Its windows are not kept in checkpoints: a resumed run tells the first
// message of a kind again.
class RepeatedNotes {
 public:
  static constexpr std::int64_t kFirstWindow = 100;

  explicit RepeatedNotes(telemetry::Log& log) : log_(log) {}

  void Add(const std::string& kind, std::int64_t step, const std::string& message);
  // Is called once a step, after its messages.
  void EndStep(std::int64_t step);

 private:
  struct Window {
    std::int64_t begin = 0;  // the step of the message that was said
    std::int64_t length = 0;
    std::int64_t counted = 0;  // since then
    std::int64_t last_step = 0;
    std::string last;
  };
  void Say(std::int64_t step, const std::string& message);

  telemetry::Log& log_;
  std::map<std::string, Window> windows_;
};

}  // namespace ada::train
