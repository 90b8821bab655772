// Texts: which windows become batches, and what a sequence is called.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

#include "data/batch_maker.h"
#include "data/reports/reports.h"
#include "data/row_writer.h"
#include "tokens_lab.h"

namespace ada::data {

TEST_SUITE("cpu") {
  TEST_CASE("windows of a text lie side by side, and the target of a byte is the next one") {
    const testing::TempFolder folder;
    WriteFile(folder / "a.txt", TextBytes("abcdefghij"));
    const Splits splits = Read("text", folder / "a.txt", Windows(3));
    CHECK(splits.train.task() == Task::kLanguage);
    CHECK(splits.train.classes == 256);
    CHECK(splits.train.images() == 3);  // the tenth byte is a target alone
    CHECK(splits.validation.images() == 0);
    CHECK(splits.test.images() == 0);
    CHECK(ReadSequence(splits.train, 0).tokens == Tokens{'a', 'b', 'c'});
    CHECK(ReadSequence(splits.train, 0).targets == Tokens{'b', 'c', 'd'});
    CHECK(ReadSequence(splits.train, 2).tokens == Tokens{'g', 'h', 'i'});
    CHECK(ReadSequence(splits.train, 2).targets == Tokens{'h', 'i', 'j'});
  }

  TEST_CASE("the last share of a text is split `validation`") {
    const testing::TempFolder folder;
    std::string text;
    for (int i = 0; i < 100; ++i) text += static_cast<char>(i);
    WriteFile(folder / "a.txt", TextBytes(text));
    const Splits splits = Read("text", folder / "a.txt", Windows(4, 0.1));
    CHECK(splits.train.images() == 22);  // of 90 bytes
    CHECK(splits.validation.images() == 2);
    CHECK(ReadSequence(splits.train, 21).targets.back() == 88);
    CHECK(ReadSequence(splits.validation, 0).tokens == Tokens{90, 91, 92, 93});
    CHECK(ReadSequence(splits.validation, 1).targets == Tokens{95, 96, 97, 98});
    const DatasetInfo info = Inspect("text", folder / "a.txt", Windows(4, 0.1));
    CHECK(info.height == 4);
    CHECK(info.classes == 256);
    CHECK(info.train == 22);
    CHECK(info.validation == 2);
  }

  TEST_CASE("several files are one text: lists, folders and patterns, in byte order") {
    const testing::TempFolder folder;
    WriteFile(folder / "texts/b.txt", TextBytes("defg"));
    WriteFile(folder / "texts/a.txt", TextBytes("abc"));
    WriteFile(folder / "texts/.hidden", TextBytes("?????"));
    WriteFile(folder / "texts/c.md", TextBytes("hij"));
    const auto whole = [&](const std::string& path, const FileChoices& choices) {
      const Splits splits = Read("text", path, choices);
      std::string text;
      for (std::int64_t i = 0; i < splits.train.images(); ++i)
        for (const std::int32_t token : ReadSequence(splits.train, i).tokens)
          text += static_cast<char>(token);
      return text;
    };
    CHECK(whole(folder / "texts", Windows(3)) == "abcdefghi");
    CHECK(whole(folder / "texts/*.txt", Windows(3)) == "abcdef");
    FileChoices list = Windows(2);
    list.more_paths = {folder / "texts/a.txt"};
    CHECK(whole(folder / "texts/c.md", list) == "hija");
    list.more_paths = {folder / "texts/./c.md"};
    CHECK(MessageOf(folder.path(), [&] { Read("text", folder / "texts/c.md", list); }) ==
          "DIR/texts/./c.md: stands twice in data.path");
  }

  TEST_CASE("windows are drawn from any place, by seed, epoch and number alone") {
    const testing::TempFolder folder;
    std::string text;
    for (int i = 0; i < 64; ++i) text += static_cast<char>(i);
    WriteFile(folder / "a.txt", TextBytes(text));
    const Splits splits = Read("text", folder / "a.txt", Windows(8));
    LoaderSpec spec = InOrder(5);
    spec.shuffle = true, spec.drop_last = false, spec.seed = 3;
    BatchMaker maker(splits.train, spec);
    CHECK(maker.batches_per_epoch() == 2);  // of seven windows
    std::map<std::int32_t, int> places;
    std::set<Tokens> batches;
    constexpr int kEpochs = 2000;
    for (int sequence = 0; sequence < 2 * kEpochs; ++sequence) {
      Batch batch;
      maker.Make(sequence, &batch);
      CHECK(batch.rows == (sequence % 2 == 0 ? 5 : 2));
      CHECK(batch.terms == batch.rows * 8);
      CHECK(batch.images.empty());
      for (int row = 0; row < batch.rows; ++row) {
        const std::int32_t first = batch.tokens[static_cast<std::size_t>(row * 8)];
        ++places[first];
        for (int i = 0; i < 8; ++i) {
          const auto at = static_cast<std::size_t>(row * 8 + i);
          REQUIRE(batch.tokens[at] == first + i);
          REQUIRE(batch.labels[at] == first + i + 1);
        }
      }
      if (sequence < 20) batches.insert(batch.tokens);
    }
    CHECK(batches.size() == 20);
    // 64 - 8 places, each as often as the others: within five deviations.
    CHECK(places.size() == 56);
    const double mean = 7.0 * kEpochs / 56;
    for (const auto& [place, count] : places) CHECK(std::fabs(count - mean) < 5 * std::sqrt(mean));
    Batch again, other;
    BatchMaker(splits.train, spec).Make(7, &again);
    maker.Make(7, &other);
    CHECK(again.tokens == other.tokens);
    spec.seed = 4;
    BatchMaker(splits.train, spec).Make(7, &other);
    CHECK(again.tokens != other.tokens);
  }

  TEST_CASE("the loader's batches are the same for any number of workers and after a seek") {
    const testing::TempFolder folder;
    std::string text;
    for (int i = 0; i < 500; ++i) text += static_cast<char>(i * 37);
    WriteFile(folder / "a.txt", TextBytes(text));
    const Splits splits = Read("text", folder / "a.txt", Windows(16));
    LoaderSpec spec = InOrder(4);
    spec.shuffle = true;
    std::vector<Tokens> expected;
    for (const int workers : {0, 1, 3}) {
      spec.workers = workers;
      Loader loader(splits.train, spec);
      for (int i = 0; i < 12; ++i) {
        const Batch& batch = loader.Next();
        if (workers == 0) expected.push_back(batch.tokens);
        CHECK(batch.tokens == expected[static_cast<std::size_t>(i)]);
      }
      loader.Seek(1, 0);
      CHECK(loader.Next().tokens == expected[static_cast<std::size_t>(loader.batches_per_epoch())]);
    }
  }

  TEST_CASE("parts of processes are the rows of the whole batch") {
    const testing::TempFolder folder;
    std::string text;
    for (int i = 0; i < 300; ++i) text += static_cast<char>(i * 11);
    WriteFile(folder / "a.txt", TextBytes(text));
    const Splits splits = Read("text", folder / "a.txt", Windows(8));
    LoaderSpec spec = InOrder(6);
    spec.shuffle = true;
    Batch whole, part;
    BatchMaker(splits.train, spec).Make(1, &whole);
    Tokens joined;
    for (int rank = 0; rank < 3; ++rank) {
      spec.part = {rank, 3, 0};
      BatchMaker(splits.train, spec).Make(1, &part);
      CHECK(part.whole_rows == 6);
      CHECK(part.terms == 16);
      joined.insert(joined.end(), part.tokens.begin(), part.tokens.end());
    }
    CHECK(joined == whole.tokens);
  }

  TEST_CASE("a check of a text does not ask for every token of its vocabulary") {
    const testing::TempFolder folder;
    WriteFile(folder / "a.txt", TextBytes("a short text"));
    const Splits splits = Read("text", folder / "a.txt", Windows(4));
    FileFaults faults;
    FileChecker(&faults).Check(splits.train, "train", {});
    CHECK(faults.empty());
  }

  TEST_CASE("a sequence is called by the file that it begins in, and by its place there") {
    const testing::TempFolder folder;
    WriteFile(folder / "a.txt", TextBytes("0123456789"));
    WriteFile(folder / "b.txt", TextBytes("abcdefghijklmnopqrst"));
    const Splits splits = Read("text", folder.path(), Windows(4));
    LoaderSpec drawn = InOrder(1);
    drawn.shuffle = true, drawn.seed = 3;
    const auto ordered = MakeRowWriter(splits.train, InOrder(1));
    const auto shuffled = MakeRowWriter(splits.train, drawn);
    const auto name_of = [&](const RowWriter& rows, std::int64_t epoch, std::int64_t sample) {
      return rows.NameOf(epoch, sample).substr(folder.path().size() + 1);
    };
    CHECK(name_of(*ordered, 0, 0) == "a.txt: the sequence from token 0 on");
    CHECK(name_of(*ordered, 5, 2) == "a.txt: the sequence from token 8 on");
    CHECK(name_of(*ordered, 0, 3) == "b.txt: the sequence from token 2 on");
    std::set<char> files;
    for (std::int64_t sample = 0; sample < 40; ++sample) {
      Tokens tokens(4), targets(4);
      RowPlace place;
      place.tokens = tokens.data(), place.labels = targets.data();
      shuffled->Write(1, sample, place);
      const bool first = tokens[0] < 'a';
      const std::string want =
          (first ? "a.txt" : "b.txt") +
          (": the sequence from token " + std::to_string(tokens[0] - (first ? '0' : 'a')) + " on");
      CHECK(name_of(*shuffled, 1, sample) == want);
      files.insert(want[0]);
    }
    CHECK(files.size() == 2);
    const std::string rows = WriteRows(folder, {{"train.tokens", DType::kU8, {2, 3}, Bytes(6)}});
    const Splits array = OpenTokenTensors(rows, {});
    const auto of_array = MakeRowWriter(array.train, InOrder(1));
    CHECK(name_of(*of_array, 0, 1).ends_with(": tensor train.tokens: row 1"));
  }

  TEST_CASE("a part of a text is its first or its last windows") {
    const testing::TempFolder folder;
    std::string text;
    for (int i = 0; i < 41; ++i) text += static_cast<char>(i);
    WriteFile(folder / "a.txt", TextBytes(text));
    Splits splits = Read("text", folder / "a.txt", Windows(4));
    CHECK(splits.train.images() == 10);
    Limit(splits.train, 3);
    CHECK(splits.train.images() == 3);
    CHECK(splits.train.tokens->places() == 9);  // of 13 bytes
    CHECK(ReadSequence(splits.train, 2).targets.back() == 12);
  }
}

}  // namespace ada::data
