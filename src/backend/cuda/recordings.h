// Steps that were seen before are not launched kernel by kernel, but replayed as a whole.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "backend/backend.h"
#include "backend/cuda/link.h"
#include "backend/cuda/messages.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// Backend::Run. The first call of a variant is done as it is (libraries load their kernels then),
// the second is recorded, and from then on the recording is replayed. A Run within another is part
// of that one's recording. A variant that the device cannot record is done as it is every time, but
// for the parts of it that can be recorded by themselves; a warning says why. Every variant is done
// as it is where the stream's switches have no graphs.
//
// Processes that exchange messages in a variant record it together or not at all: NCCL wants the
// same of all. Each calls Run for the same variants in the same order.
class Recordings {
 public:
  // link: of the processes; null: this one is alone.
  Recordings(Stream& stream, DiagnosticLines& diagnostic_lines, Link* link = nullptr)
      : stream_(stream), diagnostic_lines_(diagnostic_lines), link_(link) {}
  // joins_norms: batch norms take the statistics of all processes.
  void Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body,
           bool joins_norms = false);
  // Whether a Run now would be part of another one.
  bool open() const { return open_; }

 private:
  // The variant and what of a pass launches depend on: the rows of all processes too, so that all
  // record and replay the same steps.
  using Key = std::tuple<std::uint64_t, int, bool, bool, bool, bool, int, std::int64_t, bool, bool>;
  struct Variant {
    std::unique_ptr<Recording> recording;  // null: done once, or not to be recorded
    bool refused = false;
    bool has_messages = false;  // found when it was done for the first time
  };
  void Record(Variant& variant, const std::function<void()>& body);
  void Open(const std::function<void()>& body);
  std::uint64_t messages() const { return link_ == nullptr ? 0 : link_->asides(); }

  Stream& stream_;
  DiagnosticLines& diagnostic_lines_;
  Link* const link_;
  std::map<Key, Variant> variants_;  // that were done once
  bool open_ = false;                // one is being done or recorded with all its parts
};

}  // namespace ada::backend::cuda
