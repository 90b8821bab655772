// Counter-based random numbers: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random
// numbers: as easy as 1, 2, 3" (SC 2011). A number depends only on (key, counter), so any thread
// may draw any of them in any order. Not for cryptography.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>

#include "number/host_device.h"

namespace ada {

namespace philox {
inline constexpr int kRounds = 10;
inline constexpr std::uint32_t kMultiply0 = 0xD2511F53u, kMultiply1 = 0xCD9E8D57u;
inline constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
}  // namespace philox

// Four random words: ten rounds of Philox4x32 under `key` at the 128-bit counter (high, low).
// Always inlined: files compiled for one instruction set must not leave a copy that others call.
[[gnu::always_inline]] ADA_HOST_DEVICE inline std::array<std::uint32_t, 4> Philox(
    std::uint64_t key, std::uint64_t counter_high, std::uint64_t counter_low) {
  auto c0 = static_cast<std::uint32_t>(counter_low);
  auto c1 = static_cast<std::uint32_t>(counter_low >> 32);
  auto c2 = static_cast<std::uint32_t>(counter_high);
  auto c3 = static_cast<std::uint32_t>(counter_high >> 32);
  auto k0 = static_cast<std::uint32_t>(key);
  auto k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < philox::kRounds; ++round) {
    const std::uint64_t product0 = std::uint64_t{philox::kMultiply0} * c0;
    const std::uint64_t product1 = std::uint64_t{philox::kMultiply1} * c2;
    c0 = static_cast<std::uint32_t>(product1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<std::uint32_t>(product1);
    c2 = static_cast<std::uint32_t>(product0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<std::uint32_t>(product0);
    k0 += philox::kWeyl0;
    k1 += philox::kWeyl1;
  }
  return {c0, c1, c2, c3};
}

// The 24 high bits of a random word as a value in [0, 1).
ADA_HOST_DEVICE inline float UniformFloat(std::uint32_t word) {
  return static_cast<float>(word >> 8) * (1.0f / 16777216.0f);
}

// A number that distinguishes purposes ("shuffle", "augment", a layer's name): 64-bit FNV-1a.
ADA_HOST_DEVICE constexpr std::uint64_t StreamId(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char character : name) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 0x100000001b3u;
  }
  return hash;
}

// Sequential draws: words 0, 1, 2, ... of Philox(seed, stream, block), four words a block. Streams
// of different names (StreamId) or numbers never overlap, because each has its own high half of the
// counter. A copy continues independently.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint64_t stream) : seed_(seed), stream_(stream) {}

  std::uint32_t NextU32() {
    if (position_ % 4 == 0) block_ = Philox(seed_, stream_, position_ / 4);
    return block_[position_++ % 4];
  }
  // Uniform in 0..n-1 without bias (Lemire 2019); n >= 1. May draw more than one word.
  std::uint32_t Below(std::uint32_t n);
  // Uniform in [0, 1) with 24 bits; one word.
  float Uniform() { return UniformFloat(NextU32()); }
  // Standard normal (Box-Muller in double, the cosine half); four words.
  double Normal();

  // How many words have been drawn; Seek continues as if so many had been.
  std::uint64_t position() const { return position_; }
  void Seek(std::uint64_t position);

 private:
  std::uint64_t seed_, stream_, position_ = 0;
  std::array<std::uint32_t, 4> block_{};
};

}  // namespace ada
