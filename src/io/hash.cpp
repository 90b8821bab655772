// XXH3 from libxxhash's header, compiled in: nothing to link.
#include "io/hash.h"

#define XXH_INLINE_ALL
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "io/data_files.h"
#include "io/system_call.h"

namespace ada {
namespace {

std::string ToHex(const XXH128_hash_t& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  constexpr const char* kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : canonical.digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

}  // namespace

struct Hasher::State {
  XXH3_state_t xxh;
};

Hasher::Hasher() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->xxh); }
Hasher::~Hasher() = default;

void Hasher::Update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) XXH3_128bits_update(&state_->xxh, bytes.data(), bytes.size());
}

std::string Hasher::Hex() const { return ToHex(XXH3_128bits_digest(&state_->xxh)); }

std::string HashBytes(std::span<const std::byte> bytes) {
  return ToHex(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string HashFile(const std::string& path) {
  std::vector<std::byte> piece(std::size_t{1} << 18);
  Hasher hasher;
  std::string problem;
  const int fd = OpenToRead(path, Pipes::kRefused, &problem);
  const int refused = errno;
  if (fd < 0) ThrowUnread<DataError>(path + ": cannot be opened: " + problem, refused);
  while (true) {
    const ssize_t count = Retried([&] { return read(fd, piece.data(), piece.size()); });
    if (count <= 0) {
      const int error = errno;
      CloseFile(fd);
      if (count == 0) return hasher.Hex();
      ThrowUnread<DataError>(path + ": cannot be read: " + std::strerror(error), error);
    }
    hasher.Update(std::span(piece).first(static_cast<std::size_t>(count)));
  }
}

}  // namespace ada
