// See trace.h.
#include "backend/cuda/trace.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <fstream>
#include <memory>

namespace ada::backend::cuda {

Trace::Trace(Stream& stream, const std::string& path) : stream_(stream), path_(path) {
  if (path.empty()) return;
  ring_ = reinterpret_cast<TraceRing*>(stream.AllocateZeroed(sizeof(TraceRing)));
  stream.set_trace(this, 0);
}

TraceMark Trace::MarkOf(std::string_view kernel, int stream) {
  auto found = numbers_.find(kernel);
  if (found == numbers_.end()) {
    found = numbers_.emplace(kernel, static_cast<std::int32_t>(names_.size())).first;
    names_.emplace_back(kernel);
  }
  return {ring_, found->second, stream};
}

// A device that fails while it is asked for the trace ends the run elsewhere.
Trace::~Trace() {
  if (ring_ == nullptr) return;
  stream_.set_trace(nullptr, 0);
  auto* const block = reinterpret_cast<std::byte*>(ring_);
  try {
    const auto ring = std::make_unique<TraceRing>();
    stream_.CopyToHost(ring.get(), block, sizeof(TraceRing));
    stream_.Synchronize();
    const std::uint32_t count = std::min(ring->begun, TraceRing::kEntries);
    std::ofstream file(path_);
    file << "stream\tbegin_ns\tend_ns\tkernel\n";
    for (std::uint32_t k = 0; k < count; ++k) {
      const TraceEntry& of = ring->entries[(ring->begun - count + k) % TraceRing::kEntries];
      file << of.stream << '\t' << of.begin << '\t' << of.end << '\t'
           << names_[static_cast<std::size_t>(of.kernel)] << '\n';
    }
  } catch (const std::exception&) {
  }
  stream_.Free(block);
}

}  // namespace ada::backend::cuda
