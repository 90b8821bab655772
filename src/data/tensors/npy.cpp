// Reads the header of a .npy file: a dictionary in Python's syntax, of which every key and value is
// checked.
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "data/tensors/tensor_file.h"
#include "error.h"
#include "io/shown_text.h"

namespace ada::data {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

[[noreturn]] void FailNpy(const std::string& place, const std::string& problem) {
  throw DataError(place + ": " + problem);
}

// Reads the dictionary that NumPy writes: keys and values in any order, Python's syntax for texts,
// booleans and tuples of whole numbers.
class DictionaryReader {
 public:
  DictionaryReader(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  struct Facts {
    std::string descr;
    bool has_descr = false, has_order = false, has_shape = false, fortran = false;
    std::vector<std::int64_t> shape;
  };
  Facts Read() {
    Facts facts;
    Expect('{');
    while (!Take('}')) {
      const std::string key = Text();
      Expect(':');
      if (key == "descr" && !facts.has_descr)
        facts.descr = Description(), facts.has_descr = true;
      else if (key == "fortran_order" && !facts.has_order)
        facts.fortran = Truth(), facts.has_order = true;
      else if (key == "shape" && !facts.has_shape)
        facts.shape = Tuple(), facts.has_shape = true;
      else
        Damaged("unknown or repeated key " + Shown(key));
      if (!Take(',') && Next() != '}') Damaged("no comma between two keys");
    }
    Skip();
    if (at_ != text_.size()) Damaged("more after its end");
    if (!facts.has_descr || !facts.has_order || !facts.has_shape)
      Damaged("descr, fortran_order or shape is missing");
    return facts;
  }

 private:
  [[noreturn]] void Damaged(const std::string& why) const {
    FailNpy(place_, "the .npy header is damaged: " + why);
  }
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  char Next() {
    Skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Take(char c) {
    if (Next() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  void Expect(char c) {
    if (!Take(c))
      Damaged("expected '" + std::string(1, c) + "' at its byte " + std::to_string(at_));
  }
  std::string Text() {
    const char quote = Next();
    if (quote != '\'' && quote != '"') Damaged("expected a text in quotes");
    const std::size_t end = text_.find(quote, ++at_);
    if (end == std::string_view::npos) Damaged("a text without its end");
    std::string text(text_.substr(at_, end - at_));
    at_ = end + 1;
    return text;
  }
  std::string Description() {
    if (Next() == '[' || Next() == '(')
      FailNpy(place_, "holds records; expected an array of numbers");
    return Text();
  }
  bool Truth() {
    Skip();
    for (const auto& [word, value] : {std::pair{"True", true}, {"False", false}}) {
      if (!text_.substr(at_).starts_with(word)) continue;
      at_ += std::string_view(word).size();
      return value;
    }
    Damaged("fortran_order is neither True nor False");
  }
  std::vector<std::int64_t> Tuple() {
    std::vector<std::int64_t> values;
    Expect('(');
    while (!Take(')')) {
      Skip();
      std::int64_t value = 0;
      const char* begin = text_.data() + at_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
      if (error != std::errc() || value < 0 || values.size() == 32)
        Damaged("a shape that is no tuple of whole numbers");
      at_ += static_cast<std::size_t>(end - begin);
      values.push_back(value);
      if (!Take(',') && Next() != ')') Damaged("no comma between two sizes");
    }
    return values;
  }

  std::string_view text_;
  const std::string& place_;
  std::size_t at_ = 0;
};

// The first character is the byte order ('<', '>', '=', '|'), the rest kind and bytes of an
// element.
DType TypeOf(const std::string& descr, const std::string& place) {
  constexpr std::array<std::pair<std::string_view, DType>, 12> kTypes = {{{"u1", DType::kU8},
                                                                          {"i1", DType::kI8},
                                                                          {"u2", DType::kU16},
                                                                          {"i2", DType::kI16},
                                                                          {"u4", DType::kU32},
                                                                          {"i4", DType::kI32},
                                                                          {"u8", DType::kU64},
                                                                          {"i8", DType::kI64},
                                                                          {"f2", DType::kF16},
                                                                          {"f4", DType::kF32},
                                                                          {"f8", DType::kF64},
                                                                          {"b1", DType::kBool}}};
  const std::string_view word = std::string_view(descr).substr(descr.empty() ? 0 : 1);
  for (const auto& [name, dtype] : kTypes) {
    if (word != name) continue;
    if (descr[0] == '>' && BytesOf(dtype) > 1)
      FailNpy(place, "holds big-endian numbers (" + descr +
                         "); expected the machine's own order: array.astype(array.dtype."
                         "newbyteorder('='))");
    return dtype;
  }
  if (word.starts_with("O"))
    FailNpy(place,
            "holds Python objects, which only Python can read; expected an array of numbers");
  FailNpy(place, "holds elements of type " + Shown(descr) + "; expected an array of numbers");
}

}  // namespace

bool BeginsAsNpy(std::span<const std::byte> bytes) {
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
      .starts_with(kMagic);
}

NpyHeader ParseNpyHeader(std::span<const std::byte> bytes, const std::string& place) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!BeginsAsNpy(bytes)) FailNpy(place, "is no .npy array: it begins otherwise");
  if (text.size() < 12) FailNpy(place, "the .npy header is cut off");
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(text[i]));
  };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3)
    FailNpy(place, ".npy version " + std::to_string(version) + "; expected 1 to 3");
  // Version 1 has a length of 2 bytes, later ones of 4, all in little-endian order.
  const std::size_t begin = version == 1 ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (version > 1) length |= byte(10) << 16 | byte(11) << 24;
  if (length > kMostNpyHeader - begin || begin + length > text.size())
    FailNpy(place,
            "the .npy header claims " + std::to_string(length) + " bytes, more than there are");
  const auto facts = DictionaryReader(text.substr(begin, length), place).Read();
  // With one axis both orders are the same.
  if (facts.fortran && facts.shape.size() > 1)
    FailNpy(place, "is stored in Fortran order; expected C order: numpy.ascontiguousarray(array)");
  NpyHeader header;
  header.dtype = TypeOf(facts.descr, place);
  header.shape = facts.shape;
  header.data_offset = begin + length;
  std::int64_t elements = 1;
  for (const std::int64_t size : header.shape) {
    if (size > 0 && elements > kMostElements / size)
      FailNpy(place, "the .npy header claims more elements than a file can hold");
    elements *= size;
  }
  return header;
}

}  // namespace ada::data
