// See recordings.h.
#include "backend/cuda/recordings.h"

namespace ada::backend::cuda {

void Recordings::Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body) {
  const Key key{variant, pass.rows, pass.training, pass.count, pass.accumulate, pass.bins};
  const auto found = recordings_.find(key);
  if (found == recordings_.end()) {
    body();
    recordings_.emplace(key, nullptr);
    return;
  }
  if (found->second == nullptr) found->second = stream_.Record(body);
  found->second->Replay();
}

}  // namespace ada::backend::cuda
