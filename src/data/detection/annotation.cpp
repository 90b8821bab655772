#include "data/detection/annotation.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <optional>
#include <pugixml.hpp>

#include "core/data_files.h"
#include "core/error.h"
#include "core/machine_error.h"
#include "core/utf8.h"

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
  AnnotationReader(std::string_view xml, const std::string& path) : xml_(xml), path_(path) {
    const pugi::xml_parse_result result =
        document_.load_buffer(xml.data(), xml.size(), pugi::parse_default, pugi::encoding_auto);
    if (result.status == pugi::status_out_of_memory) throw NoMemory(path, "read it");
    if (!result) Fail(result.offset, std::string("this is no XML: ") + result.description());
  }

  Annotation Read() const {
    const pugi::xml_node root = document_.child("annotation");
    if (!root) Fail(0, "there is no <annotation>");
    Annotation annotation;
    annotation.size = ReadSize(root.child("size"));
    for (const pugi::xml_node node : root.children("object"))
      annotation.objects.push_back(ReadObject(node));
    return annotation;
  }

 private:
  [[noreturn]] void Fail(std::ptrdiff_t offset, const std::string& problem) const {
    throw DataError(path_ + ": line " + std::to_string(LineAt(offset)) + ": " + problem +
                    "; expected an annotation as PASCAL VOC's");
  }

  int LineAt(std::ptrdiff_t offset) const {
    const auto end =
        std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(xml_.size()));
    return 1 + static_cast<int>(std::count(xml_.begin(), xml_.begin() + end, '\n'));
  }

  PictureSize ReadSize(const pugi::xml_node& size) const {
    if (!size) return {};
    const auto side = [&](const char* name) {
      const pugi::xml_node node = size.child(name);
      if (!node || Trimmed(node.text().get()).empty()) return 0;
      const double value = Number(node);
      if (value < 0 || value != std::floor(value))
        Fail(node.offset_debug(), TagOf(name) + " of the image is " +
                                      Shown(Trimmed(node.text().get())) + ", no whole number");
      return static_cast<int>(value);
    };
    const PictureSize read{side("height"), side("width")};
    return read.height == 0 || read.width == 0 ? PictureSize{} : read;
  }

  AnnotatedObject ReadObject(const pugi::xml_node& node) const {
    AnnotatedObject object;
    object.line = LineAt(node.offset_debug());
    object.name = Trimmed(node.child("name").text().get());
    if (object.name.empty()) Fail(node.offset_debug(), "an <object> without <name>");
    object.difficult = ReadDifficult(node.child("difficult"));
    const pugi::xml_node box = node.child("bndbox");
    if (!box) Fail(node.offset_debug(), "the object " + Shown(object.name) + " has no <bndbox>");
    const auto side = [&](const char* name) {
      const pugi::xml_node value = box.child(name);
      if (!value) Fail(box.offset_debug(), "a <bndbox> without " + TagOf(name));
      return static_cast<float>(Number(value) - 1);
    };
    object.box = {side("ymin"), side("xmin"), side("ymax"), side("xmax")};
    return object;
  }

  bool ReadDifficult(const pugi::xml_node& node) const {
    std::string text(Trimmed(node.text().get()));
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (text.empty() || text == "0" || text == "false" || text == "unspecified") return false;
    if (text == "1" || text == "true") return true;
    Fail(node.offset_debug(), "<difficult> is " + Shown(text) + ", neither 0 nor 1");
  }

  double Number(const pugi::xml_node& node) const {
    const std::string_view text = Trimmed(node.text().get());
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool all = error == std::errc() && end == text.data() + text.size();
    if (all && std::abs(value) <= kFarthest) return value;
    Fail(node.offset_debug(), TagOf(node.name()) + " is " + Shown(text) +
                                  (all ? ", no place in a picture" : ", no number"));
  }

  std::string_view xml_;
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
