// The formats of .npz files: members of a ZIP file, of which each is a .npy file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"

namespace ada::data {

// The header of a .npy file (NumPy Enhancement Proposal 1, "A Simple File Format for NumPy
// Arrays"): magic string, version, header length, and a Python dictionary of element type, order
// and shape.
struct NpyHeader {
  DType dtype = DType::kU8;
  std::vector<std::int64_t> shape;
  std::size_t data_offset = 0;  // where the elements begin
};

// A header takes no more.
inline constexpr std::size_t kMostNpyHeader = 64 << 10;

// Whether a file has the magic string of NumPy.
bool BeginsAsNpy(std::span<const std::byte> bytes);
// Parses the header at the beginning of `bytes`, which may be cut after kMostNpyHeader bytes.
// `place` begins every message. DataError: another magic string or version, damage, and arrays that
// are refused: of objects, records, complex numbers or text, of big-endian numbers, in Fortran
// order.
NpyHeader ParseNpyHeader(std::span<const std::byte> bytes, const std::string& place);

// A member of a ZIP file (PKWARE's APPNOTE.TXT) that lies in memory. The readers know the part of
// the format that numpy.savez writes, sizes of 64 bits included: stored or deflated, not encrypted,
// one volume.
struct ZipMember {
  std::string name;
  bool deflated = false;
  std::span<const std::byte> stored;  // its bytes in the file
  std::uint64_t size = 0;             // unpacked
  std::uint32_t crc = 0;              // of the unpacked bytes
};

// `path` begins every message. DataError: no ZIP file, truncated, offsets or sizes that do not fit,
// other methods, a name twice.
std::vector<ZipMember> ReadZip(std::span<const std::byte> file, const std::string& path);

// The first bytes of a member, at most `most`. `place` begins the message of a DataError.
std::vector<std::byte> BeginningOf(const ZipMember& member, std::size_t most,
                                   const std::string& place);
// DataError where the data of a stored member has another CRC-32 than the file says.
void CheckSum(const ZipMember& member, const std::string& place);
// Unpacks a deflated member after its first `skip` bytes into `to`, which takes all the rest, and
// checks the sum of the whole. DataError where the data is damaged, or more or less than it says.
void Unpack(const ZipMember& member, std::size_t skip, std::span<std::byte> to,
            const std::string& place);

}  // namespace ada::data
