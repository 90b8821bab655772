// Reads the directory of a ZIP file from its end, checks it against the members' own headers, and
// unpacks by zlib.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <unordered_set>

#include "data/tensors/tensor_file.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"

namespace ada::data {
namespace {

constexpr std::uint32_t kEndMagic = 0x06054b50, kEnd64Magic = 0x06064b50, kLocator64 = 0x07064b50;
constexpr std::uint32_t kEntryMagic = 0x02014b50, kLocalMagic = 0x04034b50;
constexpr std::size_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56, kEntryBytes = 46;
constexpr std::size_t kLocalBytes = 30, kMostComment = 0xffff;
constexpr std::uint64_t kIn64 = 0xffffffff;  // the true value stands among the 64-bit ones
constexpr std::uint64_t kMostMembers = 10'000;
constexpr std::uint64_t kMostRatio = 1032;  // deflate packs no better

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> file, const std::string& path) : file_(file), path_(path) {}

  std::vector<ZipMember> Read() {
    const Directory directory = FindDirectory();
    std::vector<ZipMember> members;
    std::unordered_set<std::string> names;
    std::uint64_t at = directory.offset;
    for (std::uint64_t i = 0; i < directory.members; ++i) {
      members.push_back(ReadEntry(&at));
      if (!names.insert(members.back().name).second)
        Fail(at, "the member " + Visible(members.back().name) + " is there twice");
    }
    return members;
  }

 private:
  struct Directory {
    std::uint64_t offset = 0, members = 0;
  };

  [[noreturn]] void Fail(std::uint64_t at, const std::string& problem) const {
    throw DataError(path_ + ": byte " + std::to_string(at) + ": " + problem +
                    "; expected an .npz file as numpy.savez writes it");
  }
  void Require(std::uint64_t at, std::uint64_t bytes) const {
    if (at > file_.size() || bytes > file_.size() - at)
      Fail(at, "the ZIP file's list of members is damaged or cut off");
  }
  std::uint64_t Number(std::uint64_t at, std::size_t bytes) const {
    Require(at, bytes);
    std::uint64_t value = 0;
    std::memcpy(&value, file_.data() + at, bytes);
    return value;
  }

  // The list of members is found from the end of the file, where a comment of up to 64 KiB may
  // follow it: the record's own length of the comment tells it from bytes that only look like it.
  Directory FindDirectory() const {
    if (file_.size() < kEndBytes) Fail(0, "too short for a ZIP file");
    const std::uint64_t last = file_.size() - kEndBytes;
    const std::uint64_t first = last > kMostComment ? last - kMostComment : 0;
    for (std::uint64_t at = last + 1; at-- > first;) {
      if (Number(at, 4) != kEndMagic || Number(at + 20, 2) != last - at) continue;
      Directory directory{Number(at + 16, 4), Number(at + 10, 2)};
      if (directory.offset == kIn64 || directory.members == 0xffff) directory = Directory64(at);
      if (directory.members > kMostMembers)
        Fail(at, "claims " + std::to_string(directory.members) + " members");
      return directory;
    }
    Fail(last, "the end of a ZIP file is missing: it is truncated, or none");
  }
  Directory Directory64(std::uint64_t end) const {
    if (end < kLocatorBytes || Number(end - kLocatorBytes, 4) != kLocator64)
      Fail(end, "the 64-bit end of the ZIP file is missing");
    const std::uint64_t at = Number(end - kLocatorBytes + 8, 8);
    Require(at, kEnd64Bytes);
    if (Number(at, 4) != kEnd64Magic) Fail(at, "the 64-bit end of the ZIP file is damaged");
    return {Number(at + 48, 8), Number(at + 32, 8)};
  }

  // The 64-bit values of an entry, in the order of those that it leaves to them.
  void Widen(std::uint64_t at, std::uint64_t bytes,
             std::initializer_list<std::uint64_t*> values) const {
    const std::uint64_t end = at + bytes;
    while (at + 4 <= end) {
      const std::uint64_t kind = Number(at, 2), size = Number(at + 2, 2);
      at += 4;
      if (size > end - at) return;
      if (kind == 1) {
        std::uint64_t value_at = at;
        for (std::uint64_t* value : values) {
          if (*value != kIn64 || value_at + 8 > at + size) continue;
          *value = Number(value_at, 8);
          value_at += 8;
        }
        return;
      }
      at += size;
    }
  }

  ZipMember ReadEntry(std::uint64_t* at) const {
    Require(*at, kEntryBytes);
    const std::uint64_t entry = *at;
    if (Number(entry, 4) != kEntryMagic) Fail(entry, "the ZIP file's list of members is damaged");
    const std::uint64_t flags = Number(entry + 8, 2), method = Number(entry + 10, 2);
    const std::uint64_t name_bytes = Number(entry + 28, 2), extra_bytes = Number(entry + 30, 2);
    std::uint64_t stored = Number(entry + 20, 4), size = Number(entry + 24, 4);
    std::uint64_t offset = Number(entry + 42, 4);
    Require(entry + kEntryBytes, name_bytes + extra_bytes);
    Widen(entry + kEntryBytes + name_bytes, extra_bytes, {&size, &stored, &offset});
    *at = entry + kEntryBytes + name_bytes + extra_bytes + Number(entry + 32, 2);

    ZipMember member;
    member.name.assign(reinterpret_cast<const char*>(file_.data()) + entry + kEntryBytes,
                       name_bytes);
    if ((flags & 1) != 0) Fail(entry, "the member " + Visible(member.name) + " is encrypted");
    if (method != 0 && method != 8)
      Fail(entry,
           "the member " + Visible(member.name) + " is packed by method " + std::to_string(method));
    member.deflated = method == 8;
    member.size = size;
    member.crc = static_cast<std::uint32_t>(Number(entry + 16, 4));
    Require(offset, kLocalBytes);
    if (Number(offset, 4) != kLocalMagic)
      Fail(offset, "the header of member " + Visible(member.name) + " is damaged");
    // The local header repeats the name, with an extra field of a length of its own.
    const std::uint64_t data =
        offset + kLocalBytes + Number(offset + 26, 2) + Number(offset + 28, 2);
    Require(data, stored);
    member.stored = file_.subspan(data, stored);
    if (member.deflated ? size > (stored + 1) * kMostRatio : size != stored)
      Fail(entry, "the member " + Visible(member.name) + " claims " + std::to_string(size) +
                      " bytes, which do not fit its data");
    return member;
  }

  std::span<const std::byte> file_;
  const std::string& path_;
};

// Unpacks a deflated member piece by piece.
class Inflater {
 public:
  Inflater(const ZipMember& member, const std::string& place)
      : left_(member.stored), place_(place) {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK) throw NoMemory(place_, "unpack it");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Fills `to` as far as there is data; how much.
  std::size_t Take(std::span<std::byte> to) {
    std::size_t done = 0;
    while (done < to.size() && !ended_) {
      const std::size_t piece = std::min(to.size() - done, kPiece);
      const std::size_t input = std::min(left_.size(), kPiece);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(left_.data()));
      stream_.avail_in = static_cast<uInt>(input);
      stream_.next_out = reinterpret_cast<Bytef*>(to.data() + done);
      stream_.avail_out = static_cast<uInt>(piece);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      left_ = left_.subspan(input - stream_.avail_in);
      const std::size_t got = piece - stream_.avail_out;
      done += got;
      ended_ = code == Z_STREAM_END;
      if (code == Z_MEM_ERROR) throw NoMemory(place_, "unpack it");
      const bool stuck = got == 0 && stream_.avail_in == input && !ended_;
      if ((code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) || stuck)
        throw DataError(place_ + ": the packed data is damaged or cut off");
    }
    return done;
  }

 private:
  static constexpr std::size_t kPiece = std::size_t{1} << 30;
  std::span<const std::byte> left_;
  const std::string& place_;
  z_stream stream_{};
  bool ended_ = false;
};

uLong Crc(uLong before, std::span<const std::byte> bytes) {
  return crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

void RequireSum(uLong sum, const ZipMember& member, const std::string& place) {
  if (sum != member.crc)
    throw DataError(place + ": the data is damaged: its CRC-32 is another one than the file says");
}

}  // namespace

std::vector<ZipMember> ReadZip(std::span<const std::byte> file, const std::string& path) {
  return ZipReader(file, path).Read();
}

std::vector<std::byte> BeginningOf(const ZipMember& member, std::size_t most,
                                   const std::string& place) {
  const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(most, member.size));
  if (!member.deflated) return {member.stored.begin(), member.stored.begin() + wanted};
  std::vector<std::byte> bytes(wanted);
  bytes.resize(Inflater(member, place).Take(bytes));
  return bytes;
}

void CheckSum(const ZipMember& member, const std::string& place) {
  ADA_CHECK(!member.deflated);
  RequireSum(Crc(0, member.stored), member, place);
}

void Unpack(const ZipMember& member, std::size_t skip, std::span<std::byte> to,
            const std::string& place) {
  ADA_CHECK(member.deflated && skip + to.size() == member.size);
  std::vector<std::byte> head(skip);
  std::array<std::byte, 1> more;
  Inflater inflater(member, place);
  const bool whole = inflater.Take(head) == head.size() && inflater.Take(to) == to.size() &&
                     inflater.Take(more) == 0;
  if (!whole)
    throw DataError(place + ": unpacks to another size than the file says, " +
                    std::to_string(member.size) + " bytes");
  RequireSum(Crc(Crc(0, head), to), member, place);
}

}  // namespace ada::data
