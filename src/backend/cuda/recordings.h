// Steps that were seen before are not launched kernel by kernel, but replayed as a whole.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <tuple>

#include "backend/backend.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// Backend::Run. The first call of a variant is done as it is (libraries load their kernels then),
// the second is recorded, and from then on the recording is replayed.
class Recordings {
 public:
  explicit Recordings(Stream& stream) : stream_(stream) {}
  void Run(std::uint64_t variant, const Pass& pass, const std::function<void()>& body);

 private:
  // The variant and what of a pass launches depend on.
  using Key = std::tuple<std::uint64_t, int, bool, bool, bool, bool>;
  Stream& stream_;
  std::map<Key, std::unique_ptr<Recording>> recordings_;  // null: done once
};

}  // namespace ada::backend::cuda
