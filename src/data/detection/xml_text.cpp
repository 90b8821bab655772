// Finds the encoding of an XML file as XML 1.0, appendix F, describes it: by a byte order mark, by
// the first bytes in 16 bits, or by the declaration; UTF-8 without any. The encoding is a name out
// of a file, so only plain names are handed to iconv: suffixes such as //TRANSLIT would let it
// replace characters in silence.
#include <fcntl.h>
#include <iconv.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

#include "data/detection/voc_files.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"

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

constexpr std::uint32_t kLastCharacter = 0x10FFFF;

bool IsSurrogate(std::uint32_t code) { return code >= 0xD800 && code <= 0xDFFF; }

// The characters that XML 1.0 lets stand in a text.
bool IsXmlCharacter(std::uint32_t code) {
  const bool blank = code == '\t' || code == '\n' || code == '\r';
  return blank || (code >= 0x20 && code <= kLastCharacter && !IsSurrogate(code) && code != 0xFFFE &&
                   code != 0xFFFF);
}

// Writes a code point in UTF-8, surrogates included: Check finds what is no character.
void Append(std::uint32_t code, std::string* text) {
  const auto add = [text](std::uint32_t byte) { *text += static_cast<char>(byte); };
  const auto add_rest = [&](int shift) { add(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return add(code);
  if (code < 0x800) {
    add(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12), add_rest(6);
  } else {
    add(0xF0 | code >> 18), add_rest(12), add_rest(6);
  }
  add_rest(0);
}

// A pair of surrogates makes one character; anything that is none becomes bytes that Check refuses,
// with the line where it stands.
std::string OfUtf16(std::string_view bytes, bool big_endian) {
  const auto unit = [&](std::size_t at) -> std::uint32_t {
    const auto first = static_cast<unsigned char>(bytes[at]);
    const auto second = static_cast<unsigned char>(bytes[at + 1]);
    return big_endian ? first << 8 | second : second << 8 | first;
  };
  std::string text;
  for (std::size_t at = 0; at + 1 < bytes.size(); at += 2) {
    std::uint32_t code = unit(at);
    const std::uint32_t next = at + 3 < bytes.size() ? unit(at + 2) : 0;
    if (code >= 0xD800 && code <= 0xDBFF && next >= 0xDC00 && next <= 0xDFFF) {
      code = 0x10000 + ((code - 0xD800) << 10) + (next - 0xDC00);
      at += 2;
    }
    Append(code, &text);  // half a pair alone is no UTF-8, and found as such
  }
  if (bytes.size() % 2 == 1) text += '\xFF';  // neither is half a unit
  return text;
}

// What a declaration says, in small letters: <?xml version="1.0" encoding="UTF-8"?>.
std::string DeclaredEncoding(std::string_view text) {
  if (!text.starts_with("<?xml")) return "";
  const std::string_view declaration = text.substr(0, text.find("?>"));
  const std::size_t key = declaration.find("encoding");
  if (key == std::string_view::npos) return "";
  const std::size_t open = declaration.find_first_of("\"'", key);
  if (open == std::string_view::npos) return "";
  const std::size_t close = declaration.find(declaration[open], open + 1);
  return LowerCase(declaration.substr(open + 1, close - open - 1));
}

// Encodings whose files do not begin with <?xml in ASCII: what declares them and does is not in
// them.
bool IsWide(const std::string& encoding) {
  return encoding.starts_with("utf-16") || encoding.starts_with("utf-32") ||
         encoding.starts_with("utf16") || encoding.starts_with("utf32") ||
         encoding.starts_with("ucs") || encoding.starts_with("iso-10646");
}

bool IsAscii(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

// Lines are counted in the bytes of the file: there is no text yet.
[[noreturn]] void FailAtByte(std::string_view bytes, std::ptrdiff_t at, const std::string& path,
                             const std::string& problem) {
  const auto line = 1 + std::count(bytes.begin(), bytes.begin() + at, '\n');
  throw DataError(path + ": line " + std::to_string(line) + ": the byte " +
                  Shown(bytes.substr(static_cast<std::size_t>(at), 1)) + problem);
}

// Bytes in the encoding that the file declares.
std::string OfDeclared(std::string_view bytes, const std::string& declared,
                       const std::string& path) {
  const Utf8Text converted = ToUtf8(bytes, declared);
  if (converted.known && converted.bad < 0) return converted.text;
  if (converted.known)
    FailAtByte(bytes, std::min<std::ptrdiff_t>(converted.bad, std::ssize(bytes) - 1), path,
               " is no " + Shown(declared) +
                   ", the encoding that the file declares; save it anew, "
                   "in UTF-8");
  // A file that declares an encoding which iconv does not know, but has only ASCII, reads the same
  // in nearly all of them.
  if (IsAscii(bytes)) return std::string(bytes);
  const auto other = std::find_if(bytes.begin(), bytes.end(),
                                  [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
  FailAtByte(bytes, other - bytes.begin(), path,
             " is in the encoding " + Shown(declared) +
                 ", which is not known here; expected UTF-8, UTF-16, or another encoding that the "
                 "file declares and that the command iconv -l lists");
}

// The marks of UTF-32 go first: that of its little-endian form begins as UTF-16's does.
std::string TextOfXml(std::string_view bytes, const std::string& path) {
  using std::string_view_literals::operator""sv;
  if (bytes.starts_with("\0\0\xFE\xFF"sv)) return OfDeclared(bytes.substr(4), "utf-32be", path);
  if (bytes.starts_with("\xFF\xFE\0\0"sv)) return OfDeclared(bytes.substr(4), "utf-32le", path);
  if (bytes.starts_with("\xFE\xFF")) return OfUtf16(bytes.substr(2), true);
  if (bytes.starts_with("\xFF\xFE")) return OfUtf16(bytes.substr(2), false);
  if (bytes.starts_with("\0<"sv)) return OfUtf16(bytes, true);
  if (bytes.starts_with("<\0"sv)) return OfUtf16(bytes, false);
  if (bytes.starts_with("\xEF\xBB\xBF")) return std::string(bytes.substr(3));
  const std::string declared = DeclaredEncoding(bytes);
  if (declared.empty() || declared == "utf-8" || declared == "utf8" || IsWide(declared))
    return std::string(bytes);
  return OfDeclared(bytes, declared, path);
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

XmlText::XmlText(std::string_view bytes, const std::string& path) {
  text_ = TextOfXml(bytes, path);
  FindLines();
  Check(path);
}

void XmlText::FindLines() {
  for (std::size_t at = 0; (at = text_.find('\n', at)) != std::string::npos; ++at)
    ends_.push_back(at);
}

int XmlText::LineAt(std::ptrdiff_t offset) const {
  const auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(offset, 0));
  return 1 + static_cast<int>(std::lower_bound(ends_.begin(), ends_.end(), at) - ends_.begin());
}

void XmlText::Check(const std::string& path) const {
  for (std::size_t at = 0; at < text_.size();) {
    const auto byte = static_cast<unsigned char>(text_[at]);
    const std::size_t length = CharacterLength(text_, at);
    if (length > 0 && (length > 1 || IsXmlCharacter(byte))) {
      at += length;
      continue;
    }
    const std::string shown = Shown(std::string_view(text_).substr(at, 1));
    throw DataError(path + ": line " + std::to_string(LineAt(static_cast<std::ptrdiff_t>(at))) +
                    ": the byte " + shown +
                    (length > 0 ? " is a control character" : " is no UTF-8") +
                    "; expected UTF-8, UTF-16, or another encoding that the file declares");
  }
}

std::string WithoutEntities(std::string_view raw, std::string* problem) {
  constexpr auto kNamed = std::to_array<std::pair<std::string_view, char>>(
      {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}});
  constexpr std::size_t kLongest = 16;
  std::string text;
  for (std::size_t at = 0; at < raw.size();) {
    if (raw[at] != '&') {
      text += raw[at++];
      continue;
    }
    // An entity is short, so a lone & far from any ; is found out at once.
    const std::size_t length = raw.substr(at, kLongest).find(';');
    const std::string_view name =
        length == std::string_view::npos ? std::string_view() : raw.substr(at + 1, length - 1);
    const auto known = std::find_if(kNamed.begin(), kNamed.end(),
                                    [name](const auto& entity) { return entity.first == name; });
    std::uint32_t code = known == kNamed.end() ? 0 : static_cast<unsigned char>(known->second);
    if (name.starts_with('#')) {
      const bool hex = name.starts_with("#x");
      const char* const begin = name.data() + (hex ? 2 : 1);
      const char* const end = name.data() + name.size();
      const auto [parsed, error] = std::from_chars(begin, end, code, hex ? 16 : 10);
      if (parsed != end || error != std::errc() || begin == end) code = 0;
    }
    // A number that is no character, such as &#0;, is refused like a name that is not known.
    if (!IsXmlCharacter(code)) {
      *problem = Shown(raw.substr(at, length == std::string_view::npos ? kLongest : length + 1)) +
                 " begins with & and is no entity that is known here; expected &amp;, &lt;, &gt;, "
                 "&quot;, &apos; or the number of a character (&#233;)";
      return "";
    }
    Append(code, &text);
    at += length + 1;
  }
  return text;
}

}  // namespace ada::data
