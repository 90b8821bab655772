// See recordings.h.
#include "backend/cuda/recordings.h"

#include <string>

#include "error.h"

namespace ada::backend::cuda {

void Recordings::Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body,
                     bool joins_norms) {
  // While an outer call runs for the first time or is being recorded, inner calls are part of it.
  if (open_ || !stream_.switches().graphs) return body();
  const Key key{variant,   pass.rows,       pass.training,  pass.count, pass.accumulate,
                pass.bins, pass.whole_rows, pass.first_row, pass.part,  joins_norms};
  const auto [found, is_new] = variants_.try_emplace(key);
  Variant& known = found->second;
  if (!is_new && !known.refused && known.recording == nullptr) Record(known, body);
  if (known.recording != nullptr) return known.recording->Replay();
  if (known.refused) return body();
  const std::uint64_t before = messages();
  try {
    Open(body);
  } catch (...) {
    variants_.erase(found);
    throw;
  }
  known.has_messages = messages() != before;
}

void Recordings::Open(const std::function<void()>& body) {
  open_ = true;
  try {
    body();
  } catch (...) {
    open_ = false;
    throw;
  }
  open_ = false;
}

// The reason why recording fails need not prevent the same work from running directly; if it does,
// it shows again when `body` is called.
void Recordings::Record(Variant& variant, const std::function<void()>& body) {
  std::string why;
  try {
    variant.recording = stream_.Record([&] { Open(body); });
  } catch (const DeviceError& error) {
    why = error.what();
  }
  const bool recorded = variant.recording != nullptr;
  if (variant.has_messages && !link_->TrueInAll(recorded) && recorded) {
    variant.recording.reset();
    why = "another process could not";
  }
  if (variant.recording != nullptr) return;
  variant.refused = true;
  diagnostic_lines_.NotRecorded(why);
}

}  // namespace ada::backend::cuda
