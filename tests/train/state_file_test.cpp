// A checkpoint's JSON: what is written is read back, and whatever somebody made of it is refused by
// its field, also where the hash is right.
#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "error.h"
#include "io/hash.h"
#include "io/json_file.h"
#include "run/checkpoint/checkpoint.h"
#include "temp_folder.h"
#include "train/small_run.h"

namespace ada::run {
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
  s.input = InputFacts{{1, 5, 4, 3}, {0.1, 0.2, 0.3}, {1, 1, 1e-30}, {"cat", "\"é, b"}};
  s.data_facts = DataFacts{{12, {5, 7}}, {3, {}}, "0123"};
  s.config = "name: \"a \\ b\"\n\tx: ,\"state_xxh3\":\"\n";
  return s;
}

// `text` after `change`, with the hash that belongs to it.
std::string ChangedText(const std::string& text, const std::function<void(Json&)>& change) {
  Json json = Json::parse(text);
  json.erase("state_xxh3");
  change(json);
  const std::string body = json.dump();
  json["state_xxh3"] = HashBytes(std::as_bytes(std::span(body)));
  return json.dump(1) + "\n";
}

std::string Changed(const std::function<void(Json&)>& change) {
  return ChangedText(StateText(Example(), "hash"), change);
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
    REQUIRE(read.state.input);
    CHECK(read.state.input->image == Shape{1, 5, 4, 3});
    CHECK(read.state.input->class_names == std::vector<std::string>{"cat", "\"é, b"});
    REQUIRE(read.state.data_facts);
    CHECK(read.state.data_facts->train.by_class == std::vector<std::int64_t>{5, 7});
    CHECK(read.state.data_facts->hash == "0123");
  }

  TEST_CASE("a checkpoint of an earlier version says nothing of its data set's images") {
    const TempFolder folder;
    folder.Write("s.json", Changed([](Json& j) { j.erase("input"), j.erase("data"); }));
    CHECK_FALSE(ReadStateText(folder / "s.json").state.input);
    CHECK_FALSE(ReadStateText(folder / "s.json").state.data_facts);
    CHECK(Refusal(folder, Changed([](Json& j) { j["data"]["train"]["by_class"] = {0.5}; })) ==
          "data.train.by_class: expected whole numbers from 0, found a list");
  }

  TEST_CASE("names of classes may hold any bytes") {
    const TempFolder folder;
    CheckpointState state = Example();
    state.input->class_names = {"a\xff\n"};
    folder.Write("s.json", StateText(state, "abc"));
    CHECK(ReadStateText(folder / "s.json").state.input->class_names ==
          std::vector<std::string>{"a\\xff\n"});
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
    for (const Case& c : std::vector<Case>{
             {"height", 0, "input.height: expected 1 to 65536, found 0"},
             {"width", 65537, "input.width: expected 1 to 65536, found 65537"},
             {"channels", 2,
              "input.mean: expected a number for each channel, or none, found a list"},
             {"mean", Json::array(),
              "input.std: expected a number for each channel, or none, found a list"},
             {"std", {1, 0, 1}, "input.std: expected numbers above 0, found a list"},
             {"std", {1, "1", 1}, "input.std: expected a list of numbers, found a list"},
             {"class_names", {1}, "input.class_names: expected a list of texts, found a list"},
             {"class_names", nullptr, "input.class_names: expected a list of texts, found null"}}) {
      CAPTURE(c.refusal);
      CHECK(Refusal(folder, Changed([&](Json& j) { j["input"][c.field] = c.value; })) == c.refusal);
    }
    CHECK(Refusal(folder, Changed([](Json& j) { j["input"] = 1; })) ==
          "input: expected an object, found 1");
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

  TEST_CASE("values that no run would have written: a resume ends with a message, or goes on") {
    using namespace testing;
    const TempFolder folder;
    const auto run = WriteConfig(folder, "run", SmallRun());
    const std::vector<std::string> one = {"--set", "checkpoint.keep=1", "--set", "train.epochs=1"};
    ADA_REQUIRE_EXIT(Run(With(run, one), folder.path()), 0);
    const std::string path = NewestCheckpoint(folder / "run", ".json"), good = ReadBytes(path);
    const auto resumes = [&](const std::string& name, const std::function<void(Json&)>& change) {
      std::filesystem::remove_all(folder / "copy");
      std::filesystem::copy(folder / "run", folder / "copy",
                            std::filesystem::copy_options::recursive);
      WriteBytes(folder / "copy/checkpoints" + path.substr(path.rfind('/')),
                 ChangedText(good, change));
      const Outcome o = Run({"--config", "run.yaml", "--output", "copy", "--resume",
                             "--no-progress", "--set", "checkpoint.keep=1"},
                            folder.path());
      INFO(name, ": ", o.err, " signal ", o.signal);
      CHECK((o.code == 0 || o.code == 2 || o.code == 3 || o.code == 5));
    };
    const std::int64_t most = JsonFields::kLargestCount;
    for (const char* field : {"step", "updates", "skips_in_a_row", "retries", "schedule_steps"})
      for (const std::int64_t value : {std::int64_t{0}, std::int64_t{5}, most})
        resumes(field, [&](Json& j) { j[field] = value; });
    for (const double value : {-1e300, 1e300})
      resumes("best_top1", [&](Json& j) { j["best_top1"] = value; });
    for (const char* field : {"policy", "layers", "tensors", "scenarios", "lengths"})
      resumes(field, [&](Json& j) { j[field] = Json::object(); });
    for (const char* field : {"config", "backend", "version"})
      for (const char* text : {"", "x: [", "\n\n"})
        resumes(field, [&](Json& j) { j[field] = text; });
    for (const char* text : {"", "0x1p+2000", "-1", "nan", "-0x1p-3", "99999999999999999999"}) {
      resumes(std::string("policy ") + text, [&](Json& j) {
        for (auto& value : j["policy"]) value = text;
      });
      resumes(std::string("layers ") + text, [&](Json& j) {
        for (auto& layer : j["layers"])
          for (auto& value : layer) value = text;
      });
    }
    for (const std::int64_t length : {std::int64_t{0}, std::int64_t{50}, most})
      resumes("lengths", [&](Json& j) {
        for (auto& value : j["lengths"]) value = length;
      });
  }

  TEST_CASE("predict asks the data set what an earlier version's checkpoint does not say") {
    using namespace testing;
    const TempFolder folder;
    const std::vector<std::string> once = {"--set", "train.max_steps=1"};
    const auto run = With(WriteConfig(folder, "run", SmallRun()), once);
    ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
    data::Picture photo{12, 12, 3, {}};
    for (int i = 0; i < 12 * 12 * 3; ++i)
      photo.pixels.push_back(static_cast<std::uint8_t>(i * 37 % 251));
    data::WritePng(folder / "photo.png", photo);
    const std::vector<std::string> predict = {"predict", "photo.png", "--checkpoint", "run"};
    const Outcome now = Run(predict, folder.path());
    ADA_REQUIRE_EXIT(now, 0);
    const std::string path = NewestCheckpoint(folder / "run", ".json");
    WriteBytes(path, ChangedText(ReadBytes(path), [](Json& j) { CHECK(j.erase("input") == 1); }));
    const Outcome earlier = Run(predict, folder.path());
    ADA_REQUIRE_EXIT(earlier, 0);
    CHECK(earlier.out == now.out);
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
}  // namespace ada::run
