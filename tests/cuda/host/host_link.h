// The host executor's messages: those of the hosts. Several processes of a test may be threads.
#pragma once
#include "backend/cuda/link.h"

namespace ada::backend::cuda {

class HostLink final : public Link {
 public:
  using Link::Link;
  void AllGather(Stream& side, const void* mine, std::size_t bytes, void* all) override {
    side.Run("link: gather",
             [this, mine, bytes, all](bool) { hosts_.AllGather(mine, bytes, all); });
  }
  void AllToAll(Stream& side, const void* mine, std::size_t bytes, void* parts) override {
    side.Run("link: exchange",
             [this, mine, bytes, parts](bool) { hosts_.AllToAll(mine, bytes, parts); });
  }
};

}  // namespace ada::backend::cuda
