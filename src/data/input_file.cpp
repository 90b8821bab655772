// Plain files are read by stdio, .gz files by zlib. A DataError says that the file is wrong, a
// DeviceError that the machine did not give it.
#include "data/input_file.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "error.h"
#include "io/data_files.h"
#include "io/system_call.h"

namespace ada::data {
namespace {

constexpr std::size_t kBufferBytes = 256 * 1024;
// Limit for unpacking data after the expected end to report its true end: crafted data may have
// none.
constexpr std::uint64_t kLookedAhead = std::uint64_t{16} << 20;
// Deflate packs no better than 1032:1 (zlib's technical notes); a claim beyond that is false.
constexpr std::uint64_t kMaxRatio = 1032;

}  // namespace

// Either a plain file or a gzip reader, and how many unpacked bytes have been read.
struct InputFile::Stream {
  std::FILE* plain = nullptr;
  gzFile packed = nullptr;
  std::uint64_t offset = 0;
  ~Stream() {
    if (plain) std::fclose(plain);
    if (packed) gzclose(packed);
  }
};

InputFile::InputFile(std::string path, std::string advice)
    : path_(std::move(path)), advice_(std::move(advice)), packed_(path_.ends_with(".gz")) {
  namespace fs = std::filesystem;
  // Errors that say nothing of the file go first: a machine that fails must not look like a missing
  // file.
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  RefuseMachineError(path_, error);
  if (!fs::exists(status)) throw DataError(path_ + ": no such file; " + advice_);
  if (!fs::is_regular_file(status)) throw DataError(path_ + ": not a regular file; " + advice_);
  stored_bytes_ = fs::file_size(path_, error);
  RefuseMachineError(path_, error);
  if (error) throw DataError(path_ + ": " + error.message() + "; " + advice_);
  stream_ = Open();
}

InputFile::~InputFile() = default;

std::unique_ptr<InputFile::Stream> InputFile::Open() const {
  auto stream = std::make_unique<Stream>();
  std::string problem;
  const int fd = OpenToRead(path_, Pipes::kRefused, &problem);
  if (fd < 0) FailToRead(path_ + ": cannot be opened: ", errno, problem);
  if (packed_) {
    stream->packed = gzdopen(fd, "rb");
    if (stream->packed) gzbuffer(stream->packed, kBufferBytes);
  } else {
    stream->plain = fdopen(fd, "rb");
  }
  if (!stream->plain && !stream->packed) {
    CloseFile(fd);
    throw NoMemory(path_, "read it");
  }
  return stream;
}

std::size_t InputFile::ReadPacked(Stream& stream, std::span<std::uint8_t> to) const {
  // zlib returns what it has unpacked even if it then fails, and gzerror tells whether
  // it did: for a truncated file the code is Z_BUF_ERROR, with fewer bytes than
  // requested.
  const int result = gzread(stream.packed, to.data(), static_cast<unsigned>(to.size()));
  const std::size_t got = result > 0 ? static_cast<std::size_t>(result) : 0;
  int code = Z_OK;
  const std::string words = gzerror(stream.packed, &code);
  if (code == Z_OK || (code == Z_BUF_ERROR && got == to.size())) return got;
  // Where inflate stopped, in the file itself: what it has unpacked by then is not known so
  // exactly.
  const std::string where = path_ + ": byte " + std::to_string(gzoffset(stream.packed)) + ": ";
  if (code == Z_ERRNO) {
    const int error = errno;
    FailToRead(where + "cannot be read: ", error, std::strerror(error));
  }
  if (code == Z_MEM_ERROR) throw NoMemory(path_, "unpack it");
  if (code == Z_BUF_ERROR) {
    throw DataError(where + "the gzip data is cut off; expected a whole gzip file; " + advice_);
  }
  const auto colon = words.rfind(": ");  // zlib puts the path before its words
  throw DataError(where + "the gzip data is damaged: " +
                  (colon == std::string::npos ? words : words.substr(colon + 2)) + "; " + advice_);
}

std::size_t InputFile::ReadSome(Stream& stream, std::span<std::uint8_t> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    // gzread takes an unsigned count and returns an int: pieces stay below both.
    const auto rest = to.subspan(done, std::min<std::size_t>(to.size() - done, 1u << 30));
    std::size_t got = 0;
    if (stream.packed) {
      got = ReadPacked(stream, rest);
    } else {
      got = std::fread(rest.data(), 1, rest.size(), stream.plain);
      if (got < rest.size() && std::ferror(stream.plain)) {
        const int error = errno;
        FailToRead(path_ + ": byte " + std::to_string(stream.offset + got) + ": cannot be read: ",
                   error, std::strerror(error));
      }
    }
    stream.offset += got;
    done += got;
    if (got == 0) break;
  }
  return done;
}

void InputFile::Read(std::span<std::uint8_t> to, const std::string& expected) {
  if (ReadSome(*stream_, to) < to.size()) Fail(stream_->offset, "the data ends here", expected);
}

void InputFile::ExpectEnd(const std::string& expected) {
  std::array<std::uint8_t, 1> byte;
  const std::uint64_t end = stream_->offset;
  if (ReadSome(*stream_, byte) != 0) Fail(end, "more data than expected", expected);
}

bool InputFile::TrailerAgrees(std::uint64_t bytes) const {
  // A gzip file has a header of at least 10 bytes and a trailer of 8, the last four of which hold
  // the unpacked size modulo 2^32 (RFC 1952). So a claim that the packed bytes cannot hold is no
  // agreement.
  if (stored_bytes_ < 18 || bytes > stored_bytes_ * kMaxRatio) return false;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path_.c_str(), "rb"),
                                                             std::fclose);
  std::array<std::uint8_t, 4> size{};
  if (!file || std::fseek(file.get(), -4, SEEK_END) != 0 ||
      std::fread(size.data(), 1, size.size(), file.get()) != size.size()) {
    return false;
  }
  const std::uint32_t stored =
      size[0] | size[1] << 8 | size[2] << 16 | static_cast<std::uint32_t>(size[3]) << 24;
  return stored == static_cast<std::uint32_t>(bytes);
}

std::uint64_t InputFile::UnpackedSize(std::uint64_t most) const {
  if (!packed_) return stored_bytes_;
  const std::unique_ptr<Stream> stream = Open();
  std::vector<std::uint8_t> scratch(kBufferBytes);
  // A second stream over the same file: the position of the first one stays.
  while (stream->offset <= most && ReadSome(*stream, scratch) == scratch.size()) {
  }
  return stream->offset;
}

void InputFile::ExpectSize(std::uint64_t bytes, const std::string& expected) {
  if (packed_ && TrailerAgrees(bytes)) return;
  const std::uint64_t most = bytes + kLookedAhead, size = UnpackedSize(most);
  if (size < bytes) Fail(size, "the data ends here", expected);
  if (size > bytes) {
    const bool cut = packed_ && size > most;
    Fail(bytes,
         std::string("more data than expected (it ") + (cut ? "goes on after" : "ends at") +
             " byte " + std::to_string(size) + ")",
         expected);
  }
}

void InputFile::FailToRead(const std::string& doing, int error, const std::string& reason) const {
  ThrowUnread<DataError>(doing + reason + (IsOfMachine(error) ? "" : "; " + advice_), error);
}

void InputFile::Fail(std::uint64_t offset, const std::string& problem,
                     const std::string& expected) const {
  throw DataError(path_ + ": byte " + std::to_string(offset) +
                  (packed_ ? " of the unpacked data: " : ": ") + problem +
                  (expected.empty() ? "" : "; expected " + expected) + "; " + advice_);
}

}  // namespace ada::data
