// The encoding is a name out of a file, so only plain names are handed to iconv: suffixes such as
// //TRANSLIT would let it replace characters in silence.
#include <fcntl.h>
#include <iconv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <new>

#include "data/detection/xml_text.h"
#include "error.h"
#include "io/data_files.h"

namespace ada::data {
namespace {

// A conversion of the system's library.
class Conversion {
 public:
  explicit Conversion(const std::string& from) : state_(iconv_open("UTF-8", from.c_str())) {}
  ~Conversion() {
    if (is_known()) iconv_close(state_);
  }
  Conversion(const Conversion&) = delete;
  Conversion& operator=(const Conversion&) = delete;

  bool is_known() const { return state_ != reinterpret_cast<iconv_t>(-1); }

  Utf8Text Convert(std::string_view bytes) const {
    constexpr std::size_t kFailed = static_cast<std::size_t>(-1);
    constexpr std::size_t kRoom = 4096;
    Utf8Text result;
    char* in = const_cast<char*>(bytes.data());  // iconv reads it alone
    std::size_t left = bytes.size();
    // The output goes through a small room that is emptied on E2BIG. When all input is taken, one
    // more call writes what an encoding with shift states still holds.
    for (bool flushes = false;;) {
      std::array<char, kRoom> room;
      char* out = room.data();
      std::size_t free = room.size();
      errno = 0;
      const std::size_t converted = flushes ? iconv(state_, nullptr, nullptr, &out, &free)
                                            : iconv(state_, &in, &left, &out, &free);
      const int error = errno;
      result.text.append(room.data(), room.size() - free);
      if (converted == kFailed && error == E2BIG) continue;
      if (converted == kFailed) {
        result.bad = in - bytes.data();
        return result;
      }
      if (flushes) return result;
      flushes = true;
    }
  }

 private:
  iconv_t state_;
};

// Letters, digits and what stands between them: no suffix that changes what iconv does.
bool IsName(const std::string& encoding) {
  return !encoding.empty() && std::all_of(encoding.begin(), encoding.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.' ||
           c == ':';
  });
}

// iconv_open loads a file for most encodings, and calls an encoding unknown where no file can be
// opened.
void RefuseWithoutDescriptors(const std::string& encoding) {
  const int fd = open("/", O_RDONLY);
  const int error = errno;
  if (fd >= 0)
    close(fd);
  else if (IsOfMachine(error))
    throw MachineFailed("the encoding " + encoding + " cannot be loaded: " + std::strerror(error),
                        error);
}

}  // namespace

Utf8Text ToUtf8(std::string_view bytes, const std::string& encoding) {
  Utf8Text unknown;
  unknown.known = false;
  if (!IsName(encoding)) return unknown;
  // Python's name of this encoding is latin-1, which iconv does not know.
  const Conversion conversion(encoding == "latin-1" ? "latin1" : encoding);
  if (!conversion.is_known()) {
    if (errno == ENOMEM) throw std::bad_alloc();
    RefuseWithoutDescriptors(encoding);
    return unknown;
  }
  return conversion.Convert(bytes);
}

}  // namespace ada::data
