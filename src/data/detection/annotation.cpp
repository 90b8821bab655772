// Parses annotations by pugixml, which is lenient: what it lets pass (text outside of the root,
// entities that it does not know, elements twice) is checked here, so that no box is read in
// silence from a file that means something else.
#include <charconv>
#include <cmath>
#include <optional>
#include <pugixml.hpp>

#include "data/detection/voc_files.h"
#include "error.h"
#include "io/data_files.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kMostXmlBytes = std::uint64_t{64} << 20;
constexpr double kFarthest = 1e7;  // pixels: more than a picture has on a side

std::string_view Trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string TagOf(const char* name) { return "<" + std::string(name) + ">"; }

// One file's text and its tree.
class AnnotationReader {
 public:
  // XmlText brings the file to UTF-8 first; `path` must outlive the reader.
  AnnotationReader(std::string_view xml, const std::string& path) : xml_(xml, path), path_(path) {
    // Text stays as it stands in the file, blanks and what lies outside of the root included: only
    // so can its parts be told apart.
    constexpr unsigned kAsItStands =
        (pugi::parse_default & ~pugi::parse_escapes) | pugi::parse_ws_pcdata | pugi::parse_fragment;
    const std::string_view text = xml_.text();
    const pugi::xml_parse_result result =
        document_.load_buffer(text.data(), text.size(), kAsItStands, pugi::encoding_utf8);
    if (result.status == pugi::status_out_of_memory) throw NoMemory(path, "read it");
    if (!result) Fail(result.offset, std::string("this is no XML: ") + result.description());
  }

  Annotation Read() const {
    const pugi::xml_node root = Root();
    Annotation annotation;
    annotation.size = ReadSize(OnlyChild(root, "size"));
    for (const pugi::xml_node node : root.children("object"))
      annotation.objects.push_back(ReadObject(node));
    return annotation;
  }

 private:
  // Offsets of pugixml count bytes of XmlText::text(), since the parser gets just that.
  [[noreturn]] void Fail(std::ptrdiff_t offset, const std::string& problem) const {
    throw DataError(path_ + ": line " + std::to_string(xml_.LineAt(offset)) + ": " + problem +
                    "; expected an annotation as PASCAL VOC's");
  }

  // The only element of the document, beside which there is no text.
  pugi::xml_node Root() const {
    pugi::xml_node root;
    for (const pugi::xml_node node : document_.children()) {
      const bool element = node.type() == pugi::node_element;
      const std::string_view value = node.value(), text = Trimmed(value);
      if (!element && !text.empty())
        Fail(node.offset_debug() + (text.data() - value.data()),
             "text outside of the root element: " + Shown(text));
      if (element && root)
        Fail(node.offset_debug(), "a second root element, " + TagOf(node.name()));
      if (element) root = node;
    }
    if (!root || std::string_view(root.name()) != "annotation") Fail(0, "there is no <annotation>");
    return root;
  }

  // The child of that name, which there may be once; null: there is none.
  pugi::xml_node OnlyChild(const pugi::xml_node& node, const char* name) const {
    const pugi::xml_node child = node.child(name);
    if (const pugi::xml_node second = child.next_sibling(name))
      Fail(second.offset_debug(),
           "a second " + TagOf(name) + " in one " + TagOf(node.name()) + ", and there may be one");
    return child;
  }

  // The text of an element: its parts between comments, and those of CDATA, are one text.
  std::string TextIn(const pugi::xml_node& element) const {
    std::string text;
    for (const pugi::xml_node part : element.children()) {
      if (part.type() == pugi::node_element)
        Fail(part.offset_debug(),
             TagOf(part.name()) + " within " + TagOf(element.name()) + ", which holds text alone");
      std::string problem;
      text +=
          part.type() == pugi::node_cdata ? part.value() : WithoutEntities(part.value(), &problem);
      if (!problem.empty()) Fail(part.offset_debug(), problem);
    }
    return std::string(Trimmed(text));
  }

  // A size that is missing, empty or 0 on one side counts as not said: some tools write zeros.
  PictureSize ReadSize(const pugi::xml_node& size) const {
    if (!size) return {};
    const auto side = [&](const char* name) {
      const pugi::xml_node node = OnlyChild(size, name);
      if (!node || TextIn(node).empty()) return 0;
      const double value = Number(node);
      if (value < 0 || value != std::floor(value))
        Fail(node.offset_debug(),
             TagOf(name) + " of the image is " + Shown(TextIn(node)) + ", no whole number");
      return static_cast<int>(value);
    };
    const PictureSize read{side("height"), side("width")};
    return read.height == 0 || read.width == 0 ? PictureSize{} : read;
  }

  AnnotatedObject ReadObject(const pugi::xml_node& node) const {
    AnnotatedObject object;
    object.line = xml_.LineAt(node.offset_debug());
    object.name = TextIn(OnlyChild(node, "name"));
    if (object.name.empty()) Fail(node.offset_debug(), "an <object> without <name>");
    object.difficult = ReadDifficult(OnlyChild(node, "difficult"));
    const pugi::xml_node box = OnlyChild(node, "bndbox");
    if (!box) Fail(node.offset_debug(), "the object " + Shown(object.name) + " has no <bndbox>");
    const auto side = [&](const char* name) {
      const pugi::xml_node value = OnlyChild(box, name);
      if (!value) Fail(box.offset_debug(), "a <bndbox> without " + TagOf(name));
      // VOC counts pixels from 1, and xmax is the last column of the object, so xmax - 1 as it is
      // here is its index. ChainerCV subtracts 1 from all four sides in this way, too.
      return static_cast<float>(Number(value) - 1);
    };
    object.box = {side("ymin"), side("xmin"), side("ymax"), side("xmax")};
    return object;
  }

  // Tools write the flag in several ways, which may be a word.
  bool ReadDifficult(const pugi::xml_node& node) const {
    const std::string text = LowerCase(TextIn(node));
    if (text.empty() || text == "0" || text == "false" || text == "unspecified") return false;
    if (text == "1" || text == "true") return true;
    Fail(node.offset_debug(), "<difficult> is " + Shown(text) + ", neither 0 nor 1");
  }

  // The number is read by from_chars, whatever the locale; the bound keeps it exact enough in fp32.
  double Number(const pugi::xml_node& node) const {
    const std::string text = TextIn(node);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool all = error == std::errc() && end == text.data() + text.size();
    if (all && std::abs(value) <= kFarthest) return value;
    Fail(node.offset_debug(), TagOf(node.name()) + " is " + Shown(text) +
                                  (all ? ", no place in a picture" : ", no number"));
  }

  XmlText xml_;
  const std::string& path_;
  pugi::xml_document document_;
};

}  // namespace

Annotation ParseAnnotation(std::string_view xml, const std::string& path) {
  return AnnotationReader(xml, path).Read();
}

Annotation ReadAnnotation(const std::string& path) {
  const std::string xml = ReadDataFile(path, kMostXmlBytes);
  return WithMemory(path, "read it", [&] { return ParseAnnotation(xml, path); });
}

}  // namespace ada::data
