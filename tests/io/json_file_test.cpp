// JSON that is too deep, torn or of the wrong types is refused with file, field and what was found.
#include "io/json_file.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "error.h"

namespace ada {
namespace {

// What reading `field` of `text` says; "": nothing is wrong.
template <class Read>
std::string Message(const std::string& text, Read read) {
  try {
    const nlohmann::json json = ParseJson("f.json", text);
    read(JsonFields(json, "f.json"));
    return "";
  } catch (const DataError& e) {
    return e.what();
  }
}

std::string Parsed(const std::string& text) {
  return Message(text, [](const JsonFields&) {});
}

std::string Nested(int depth, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("depth is bounded, however deep the text") {
    CHECK(Parsed("{\"a\":" + Nested(kMaxJsonDepth - 1, "[", "]") + "}") == "");
    CHECK(Parsed("{\"a\": [1, {\"b\": 2}, 3]}") == "");
    for (const int depth : {kMaxJsonDepth + 1, 80'000, 1'000'000}) {
      CAPTURE(depth);
      const std::string refused = "f.json: nests more than 32 deep: it is no file of this program";
      CHECK(Parsed(Nested(depth, "[", "]")) == refused);
      CHECK(Parsed(Nested(depth, "{\"a\":", "}")) == refused);  // not even valid at its middle
      CHECK(Parsed("{\"a\":" + Nested(depth, "[", "]") + "}") == refused);
    }
  }

  TEST_CASE("what is no object of JSON") {
    const std::string damaged = "f.json: is not valid JSON: it is cut off or damaged";
    for (const char* text : {"", "{", "{\"a\": 1", "{\"a\": 1e999}", "{\"a\": \"\xff\"}", "{}{}"})
      CHECK(Parsed(text) == damaged);
    CHECK(Parsed("[]") == "f.json: expected a JSON object, found a list");
    CHECK(Parsed("null") == "f.json: expected a JSON object, found null");
    CHECK(Parsed("17") == "f.json: expected a JSON object, found 17");
  }

  TEST_CASE("a field that is missing, of another type or out of range is named") {
    struct Case {
      std::string value, count, number, text;
    };
    const std::string whole = "a whole number from 0", number = "a number", text = "a text";
    for (const Case& c : std::vector<Case>{
             {"3", "", "", "3"},
             {"-3", "-3", "", "-3"},
             {"2.5", "2.5", "", "2.5"},
             {"1e30", "1e+30", "", "1e+30"},
             {"9007199254740993", "9007199254740993", "", "9007199254740993"},
             {"18446744073709551615", "18446744073709551615", "", "18446744073709551615"},
             {"\"x\"", "\"x\"", "\"x\"", ""},
             {"\"\\u001b[2J\"", "\"\\u001b[2J\"", "\"\\u001b[2J\"", ""},
             {"null", "null", "null", "null"},
             {"{}", "an object", "an object", "an object"},
             {"[1]", "a list", "a list", "a list"},
         }) {
      CAPTURE(c.value);
      const std::string json = "{\"step\": " + c.value + "}";
      const auto expected = [](const std::string& kind, const std::string& found) {
        return found.empty() ? "" : "f.json: step: expected " + kind + ", found " + found;
      };
      CHECK(Message(json, [](const JsonFields& f) { f.Count("step"); }) ==
            expected(whole, c.count));
      CHECK(Message(json, [](const JsonFields& f) { f.Number("step"); }) ==
            expected(number, c.number));
      CHECK(Message(json, [](const JsonFields& f) { f.Text("step"); }) == expected(text, c.text));
    }
    CHECK(Message("{}", [](const JsonFields& f) { f.Count("step"); }) ==
          "f.json: step: expected a whole number from 0, found nothing");
  }

  TEST_CASE("a value within an object is named with its place") {
    const std::string json = R"({"layers": {"conv1": {"calls": "1"}, "fc\u001b": {"calls": 2}},
                                 "lengths": {"steps.csv": -1}, "seed": 18446744073709551615})";
    CHECK(Message(json, [](const JsonFields& f) { f.TextMaps("layers"); }) ==
          "f.json: layers.fc\\u001b.calls: expected a text, found 2");
    CHECK(Message(json, [](const JsonFields& f) { f.Counts("lengths"); }) ==
          "f.json: lengths.steps.csv: expected a whole number from 0, found -1");
    CHECK(Message(json, [](const JsonFields& f) { f.Texts("seed"); }) ==
          "f.json: seed: expected an object, found 18446744073709551615");
    CHECK(Message(json, [](const JsonFields& f) {
            CHECK(f.Unsigned("seed") == 18446744073709551615u);
            CHECK(f.Has("layers"));
            CHECK_FALSE(f.Has("layer"));
          }) == "");
  }
}

}  // namespace ada
