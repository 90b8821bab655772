// A checkpoint's JSON: what is written is read back, and whatever somebody made of it is refused by
// its field, also where the hash is right.
#include "train/checkpoint/state_file.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/hash.h"
#include "telemetry/temp_folder.h"
#include "train/checkpoint/checkpoint.h"

namespace ada::train {
namespace {

using Json = nlohmann::ordered_json;
using testing::TempFolder;

CheckpointState Example() {
  CheckpointState s;
  s.step = 7;
  s.seed = 18446744073709551615u;
  s.best_top1 = 0.125;
  s.policy = {{"scale", "0x1p+16"}};
  s.layers = {{"fc \"1\" ", {{"calls", "1"}}}};
  s.tensors = {{"fc.w", {}}};
  s.lengths = {{"steps.csv", 100}};
  s.config = "name: \"a \\ b\"\n\tx: ,\"state_xxh3\":\"\n";
  return s;
}

// The file's text after `change`, with the hash that belongs to it.
std::string Changed(const std::function<void(Json&)>& change) {
  Json json = Json::parse(StateText(Example(), "hash"));
  json.erase("state_xxh3");
  change(json);
  const std::string body = json.dump();
  json["state_xxh3"] = HashBytes(std::as_bytes(std::span(body)));
  return json.dump(1) + "\n";
}

std::string Refusal(const TempFolder& folder, const std::string& text) {
  folder.Write("s.json", text);
  try {
    ReadStateText(folder / "s.json");
    return "";
  } catch (const DataError& e) {
    const std::string message = e.what();
    CHECK(message.starts_with(folder / "s.json: "));
    return message.substr((folder / "s.json: ").size());
  }
}

std::vector<std::string> Names(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path()))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_SUITE("cpu") {
  TEST_CASE("what is written is read back, whatever its strings hold") {
    const TempFolder folder;
    const std::string text = StateText(Example(), "abc");
    folder.Write("s.json", text);
    const StoredState read = ReadStateText(folder / "s.json");
    CHECK(read.tensors_hash == "abc");
    CHECK(StateText(read.state, read.tensors_hash) == text);
    CHECK(Refusal(folder, Changed([](Json&) {})) == "");
  }

  TEST_CASE("each byte matters") {
    const TempFolder folder;
    const std::string text = StateText(Example(), "abc");
    for (std::size_t i = 0; i < text.size(); ++i) {
      CAPTURE(i);
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ 0x11);
      const bool blank = std::isspace(text[i]) != 0 && std::isspace(flipped[i]) != 0;
      if (!blank) CHECK(Refusal(folder, flipped) != "");
      if (i % 7 == 0 && i + 2 < text.size()) CHECK(Refusal(folder, text.substr(0, i)) != "");
    }
  }

  TEST_CASE("fields of the wrong type or range are named, with a hash that is right") {
    struct Case {
      const char* field;
      Json value;
      const char* refusal;
    };
    const TempFolder folder;
    const char* whole = "expected a whole number from 0, found ";
    for (const char* field : {"step", "updates", "skips_in_a_row", "retries", "schedule_steps"})
      for (const Json& value : {Json(-1), Json(1.5), Json("1"), Json(), Json::array(), Json(1e300),
                                Json(std::int64_t{1} << 62)}) {
        const std::string shown = value.is_array() ? "a list" : value.dump();
        CHECK(Refusal(folder, Changed([&](Json& j) { j[field] = value; })) ==
              std::string(field) + ": " + whole + shown);
      }
    for (const Case& c : std::vector<Case>{
             {"seed", -1, "seed: expected a whole number from 0, found -1"},
             {"best_top1", "x", "best_top1: expected a number, found \"x\""},
             {"policy", 1, "policy: expected an object, found 1"},
             {"policy", {{"a", 1}}, "policy.a: expected a text, found 1"},
             {"layers", {{"a", "b"}}, "layers.a: expected an object, found \"b\""},
             {"tensors", Json::array({1}), "tensors: expected an object, found a list"},
             {"lengths", {{"a", -5}}, "lengths.a: expected a whole number from 0, found -5"},
             {"config", nullptr, "config: expected a text, found null"},
             {"tensors_xxh3", 5, "tensors_xxh3: expected a text, found 5"},
             {"format_version", "2", "format_version: expected a whole number from 0, found \"2\""},
             {"format_version", 3,
              "format version 3, this program reads 2; this checkpoint cannot be used"}}) {
      CAPTURE(c.refusal);
      CHECK(Refusal(folder, Changed([&](Json& j) { j[c.field] = c.value; })) == c.refusal);
    }
    CHECK(Refusal(folder, Changed([](Json& j) { j.erase("lengths"); })) ==
          "lengths: expected an object, found nothing");
  }

  TEST_CASE("nesting without end is refused") {
    const TempFolder folder;
    for (const std::size_t depth : {80'000, 1'000'000}) {
      const std::string body = "{\"a\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
      const std::string hash = HashBytes(std::as_bytes(std::span(body)));
      CHECK(Refusal(folder, body) != "");
      CHECK(Refusal(folder, body.substr(0, body.size() - 1) + ",\"state_xxh3\":\"" + hash +
                                "\"}") == "nests more than 32 deep: it is no file of this program");
    }
  }

  TEST_CASE("pruning keeps the checkpoint just written, whatever lies beside it") {
    const TempFolder folder;
    const auto pair = [&](std::int64_t step) {
      const std::string stem = CheckpointStem("", step).substr(1);
      folder.Write(stem + ".json", "x");
      folder.Write(stem + ".safetensors", "x");
    };
    for (const std::int64_t step : {4, 8, 12, 40, 44}) pair(step);
    folder.Write("step-00000002.safetensors", "x");  // a kill came between two deletions
    folder.Write("step-00000050.safetensors", "x");
    for (const char* mine : {"step-7.json", "step-+00000001.json", "best.json", "x.safetensors"})
      folder.Write(mine, "x");
    const CheckpointSteps found = ListCheckpoints(folder.path());
    CHECK(found.paired == std::vector<std::int64_t>{44, 40, 12, 8, 4});
    CHECK(found.tensors_alone == std::vector<std::int64_t>{50, 2});
    PruneCheckpoints(folder.path(), 2, 12);
    CHECK(ListCheckpoints(folder.path()).paired == std::vector<std::int64_t>{44, 40, 12, 8});
    CHECK(ListCheckpoints(folder.path()).tensors_alone == std::vector<std::int64_t>{50});
    PruneCheckpoints(folder.path(), 1, 12);
    CHECK(ListCheckpoints(folder.path()).paired == std::vector<std::int64_t>{44, 40, 12});
    RemoveOtherCheckpoints(folder.path(), 12);
    CHECK(Names(folder) ==
          std::vector<std::string>{"best.json", "step-+00000001.json", "step-00000012.json",
                                   "step-00000012.safetensors", "step-7.json", "x.safetensors"});
    CHECK(ListCheckpoints(folder / "none").paired.empty());
    CHECK_THROWS_AS(ListCheckpoints(folder / "best.json"), DataError);
  }
}

}  // namespace
}  // namespace ada::train
