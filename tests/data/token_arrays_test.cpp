// Arrays of tokens: every type of whole number, targets, and what is refused.
#include <doctest/doctest.h>

#include <set>

#include "data/batch_maker.h"
#include "data/labels.h"
#include "tokens_lab.h"

namespace ada::data {

TEST_SUITE("cpu") {
  TEST_CASE("arrays of tokens: every type of whole number, targets and none") {
    const testing::TempFolder folder;
    const auto check = [&](DType dtype, const Bytes& tokens) {
      CAPTURE(ToString(dtype));
      FileChoices choices;
      const std::string path = WriteRows(folder, {{"train.tokens", dtype, {2, 3}, tokens}});
      const Splits splits = OpenTokenTensors(path, choices);
      CHECK(splits.train.classes == 7);
      CHECK(splits.train.images() == 2);
      CHECK(splits.train.height == 3);
      CHECK(splits.test.images() == 0);
      CHECK(splits.train.tokens->places() == 0);
      CHECK(ReadSequence(splits.train, 1).tokens == Tokens{4, 5, 6});
      CHECK(ReadSequence(splits.train, 1).targets == Tokens{5, 6, kNoLabel});
      Batch batch;
      BatchMaker(splits.train, InOrder(2)).Make(0, &batch);
      CHECK(batch.terms == 4);
    };
    check(DType::kU8, {1, 2, 3, 4, 5, 6});
    check(DType::kI8, {1, 2, 3, 4, 5, 6});
    check(DType::kU16, BytesOfNumbers<std::uint16_t>({1, 2, 3, 4, 5, 6}));
    check(DType::kI16, BytesOfNumbers<std::int16_t>({1, 2, 3, 4, 5, 6}));
    check(DType::kU32, BytesOfNumbers<std::uint32_t>({1, 2, 3, 4, 5, 6}));
    check(DType::kI32, BytesOfNumbers<std::int32_t>({1, 2, 3, 4, 5, 6}));
    check(DType::kU64, BytesOfNumbers<std::uint64_t>({1, 2, 3, 4, 5, 6}));
    check(DType::kI64, BytesOfNumbers<std::int64_t>({1, 2, 3, 4, 5, 6}));
    const std::string path =
        WriteRows(folder, {{"train.tokens", DType::kU8, {2, 3}, {1, 2, 3, 4, 5, 6}},
                           {"train.targets",
                            DType::kI32,
                            {2, 3},
                            BytesOfNumbers<std::int32_t>({9, -100, 0, 8, -100, -100})},
                           {"test.tokens", DType::kU8, {1, 3}, {0, 0, 1}}});
    FileChoices choices;
    choices.language = true;
    const Splits splits = Read("tensors", path, choices);
    CHECK(splits.train.classes == 10);
    CHECK(ReadSequence(splits.train, 0).targets == Tokens{9, kNoLabel, 0});
    CHECK(splits.test.images() == 1);
    CHECK(splits.test.classes == 10);
    Batch batch;
    BatchMaker(splits.train, InOrder(2)).Make(0, &batch);
    CHECK(batch.terms == 3);
    Dataset train = splits.train;
    const Dataset last = SplitLast(train, 1);
    CHECK(train.images() == 1);
    CHECK(ReadSequence(last, 0).tokens == Tokens{4, 5, 6});
  }

  TEST_CASE("large arrays are looked at by several threads, and the first fault is told") {
    const testing::TempFolder folder;
    constexpr std::int64_t kRows = 5000, kContext = 1000;  // several threads' parts
    Bytes tokens(static_cast<std::size_t>(kRows * kContext), 3);
    FileChoices choices;
    const auto classes = [&] {
      const std::string path =
          WriteRows(folder, {{"train.tokens", DType::kU8, {kRows, kContext}, tokens}});
      return OpenTokenTensors(path, choices).train.classes;
    };
    CHECK(classes() == 4);
    tokens.back() = 200;
    CHECK(classes() == 201);
    tokens[4'200'017] = 90;
    choices.vocabulary = 50;
    CHECK(MessageOf(folder.path(), [&] { classes(); })
              .ends_with("tensor train.tokens: element [4200, 17] is 90; expected 0 to 49, the "
                         "vocabulary"));
  }

  TEST_CASE("rows are shuffled: each once an epoch") {
    const testing::TempFolder folder;
    Bytes tokens;
    for (std::uint8_t i = 0; i < 20; ++i) tokens.insert(tokens.end(), {i, i});
    const std::string path = WriteRows(folder, {{"train.tokens", DType::kU8, {20, 2}, tokens}});
    const Splits splits = OpenTokenTensors(path, {});
    LoaderSpec spec = InOrder(20);
    spec.shuffle = true;
    BatchMaker maker(splits.train, spec);
    Batch first, second;
    maker.Make(0, &first);
    maker.Make(1, &second);
    CHECK(first.tokens != second.tokens);
    CHECK(std::set<std::int32_t>(first.tokens.begin(), first.tokens.end()).size() == 20);
    CHECK(std::set<std::int32_t>(second.tokens.begin(), second.tokens.end()).size() == 20);
  }

  TEST_CASE("arrays that are no tokens are refused with tensor and place") {
    const testing::TempFolder folder;
    const auto message = [&](const std::vector<NamedNumbers>& arrays, int vocabulary = 0) {
      FileChoices choices;
      choices.vocabulary = vocabulary;
      const std::string path = WriteRows(folder, arrays);
      return MessageOf(folder.path(), [&] { OpenTokenTensors(path, choices); });
    };
    const std::string file = "DIR/rows.safetensors: ";
    const NamedNumbers good{"train.tokens", DType::kU8, {2, 2}, {0, 1, 2, 3}};
    CHECK(message({{"train.images", DType::kU8, {1}, {0}}}) ==
          file +
              "holds no tensor train.tokens; expected train.tokens [n, tokens], and with it or "
              "not train.targets, test.tokens, test.targets; it has train.images");
    CHECK(message({{"train.tokens", DType::kF32, {1, 1}, Bytes(4)}}) ==
          file +
              "tensor train.tokens: elements are F32; expected whole numbers (I32, U16, U8, "
              "...)");
    CHECK(message({{"train.tokens", DType::kU8, {4}, Bytes(4)}}) ==
          file +
              "tensor train.tokens: has the shape [4]; expected [sequences, tokens], of at most "
              "65536 tokens each");
    CHECK(message({{"train.tokens", DType::kI8, {2, 2}, {0, 1, 255, 3}}}) ==
          file + "tensor train.tokens: element [1, 0] is -1; expected 0 to 999999, the vocabulary");
    CHECK(message({good}, 3) ==
          file + "tensor train.tokens: element [1, 1] is 3; expected 0 to 2, the vocabulary");
    CHECK(message({good, {"train.targets", DType::kI8, {2, 2}, {0, 1, 156, 157}}}) ==
          file +
              "tensor train.targets: element [1, 1] is -99; expected 0 to 999999, the "
              "vocabulary, or -100 for none");
    CHECK(message({good, {"train.targets", DType::kU8, {2, 1}, {0, 1}}}) ==
          file +
              "tensor train.targets: has the shape [2, 1]; expected [2, 2], a target for each "
              "of train.tokens");
    CHECK(message({good, {"test.tokens", DType::kU8, {1, 3}, {0, 1, 2}}}) ==
          file +
              "tensor test.tokens: has the shape [1, 3]; expected sequences of 2, as in "
              "train.tokens");
    CHECK(message({good, {"test.targets", DType::kU8, {1, 2}, {0, 1}}}) ==
          file +
              "holds no tensor test.tokens; expected train.tokens [n, tokens], and with it or "
              "not train.targets, test.tokens, test.targets; it has train.tokens, test.targets");
  }
}

}  // namespace ada::data
