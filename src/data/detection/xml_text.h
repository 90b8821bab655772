// The text of an XML file as UTF-8 without a byte order mark, and its lines.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ada::data {

// AnnotationReader makes it before anything is parsed, so that the parser sees valid text in one
// encoding and messages can name lines. It copies the text.
class XmlText {
 public:
  // `bytes`: of a file in UTF-8, UTF-16, UTF-32 or another encoding that it declares; `path` is for
  // messages. DataError naming the line: bytes that are none of it, an encoding that is not known
  // here (of text that is not ASCII), control characters.
  XmlText(std::string_view bytes, const std::string& path);

  std::string_view text() const { return text_; }
  // The line, from 1, of a place in text(); in logarithmic time.
  int LineAt(std::ptrdiff_t offset) const;

 private:
  void FindLines();
  void Check(const std::string& path) const;

  std::string text_;
  std::vector<std::size_t> ends_;  // of the lines
};

// Text of an element as it stands in a file, with each entity (&amp;, &#233;, &#xE9;) as the
// character that it means. "" and `problem` in words: an entity that XML itself does not know.
std::string WithoutEntities(std::string_view raw, std::string* problem);

// A text in the encoding that its file declares, as UTF-8, by iconv. Three outcomes are told apart:
// an encoding that the system does not know, bytes that are not valid in it, and a text.
struct Utf8Text {
  bool known = true;        // the encoding is
  std::string text;         // up to `bad`
  std::ptrdiff_t bad = -1;  // the first byte that is none of the encoding's; -1: there is none
};

// `encoding`: as XML names it, in any case.
Utf8Text ToUtf8(std::string_view bytes, const std::string& encoding);

}  // namespace ada::data
