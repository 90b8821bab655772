// Texts, files of tokens as nanoGPT and llm.c write them, arrays of tokens: which windows become
// batches, and everything that is refused.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "data/batch_maker.h"
#include "data/dataset.h"
#include "data/labels.h"
#include "data/loader.h"
#include "data/readers.h"
#include "data/reports/reports.h"
#include "data/row_writer.h"
#include "data/tokens/token_files.h"
#include "io/tensor_files/safetensors.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

using Tokens = std::vector<std::int32_t>;

template <class T>
Bytes BytesOfNumbers(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(values.data());
  return Bytes(begin, begin + values.size() * sizeof(T));
}

Bytes TextBytes(const std::string& text) { return Bytes(text.begin(), text.end()); }

// llm.c's header, then the tokens.
template <class T>
Bytes WithHeader(std::int32_t magic, std::int32_t version, std::int32_t count,
                 const std::vector<T>& tokens) {
  std::vector<std::int32_t> header(256);
  header[0] = magic, header[1] = version, header[2] = count;
  Bytes bytes = BytesOfNumbers(header);
  const Bytes more = BytesOfNumbers(tokens);
  bytes.insert(bytes.end(), more.begin(), more.end());
  return bytes;
}

FileChoices Windows(int context, double validation = 0) {
  FileChoices choices;
  choices.context = context;
  choices.validation = validation;
  return choices;
}

struct Sequence {
  Tokens tokens, targets;
};
Sequence ReadSequence(const Dataset& set, std::int64_t index) {
  Sequence s;
  s.tokens.resize(static_cast<std::size_t>(set.tokens->context()));
  s.targets.resize(s.tokens.size());
  set.tokens->Read(index, {s.tokens.data(), s.targets.data()});
  return s;
}

LoaderSpec InOrder(int batch_size) {
  LoaderSpec spec;
  spec.batch_size = batch_size;
  return spec;
}

struct NamedNumbers {
  std::string name;
  DType dtype;
  std::vector<std::int64_t> shape;
  Bytes bytes;
};

std::string WriteRows(const testing::TempFolder& folder, const std::vector<NamedNumbers>& arrays) {
  SafetensorsWriter writer;
  for (const NamedNumbers& array : arrays)
    writer.Add(array.name, array.dtype, array.shape, std::as_bytes(std::span(array.bytes)));
  const std::string path = folder / "rows.safetensors";
  writer.WriteAtomically(path);
  return path;
}

}  // namespace

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

  TEST_CASE("files of tokens: uint16 and uint32, with llm.c's header and without") {
    const testing::TempFolder folder;
    const std::vector<std::uint16_t> narrow = {5, 6, 7, 8, 9, 300, 50256, 1};
    const std::vector<std::uint32_t> wide = {5, 6, 7, 8, 9, 300, 128255, 1};
    WriteFile(folder / "nanogpt.bin", BytesOfNumbers(narrow));
    WriteFile(folder / "wide.bin", BytesOfNumbers(wide));
    WriteFile(folder / "llmc.bin", WithHeader(20240520, 1, 8, narrow));
    WriteFile(folder / "llama3.bin", WithHeader(20240801, 7, 8, wide));
    const auto check = [&](const char* name, TokenType type, int vocabulary,
                           const std::string& note) {
      FileChoices choices = Windows(3);
      choices.token_type = type;
      const Splits splits = Read("tokens", folder / name, choices);
      CHECK(splits.train.classes == vocabulary);
      CHECK(splits.train.images() == 2);
      CHECK(ReadSequence(splits.train, 0).tokens == Tokens{5, 6, 7});
      CHECK(ReadSequence(splits.train, 1).targets == Tokens{9, 300, vocabulary - 1});
      CHECK(splits.note.substr(std::min(splits.note.size(), (folder / name).size())) == note);
    };
    check("nanogpt.bin", TokenType::kAuto, 50257, " is read as uint16 (data.element)");
    check("nanogpt.bin", TokenType::kUint16, 50257, "");
    check("wide.bin", TokenType::kUint32, 128256, "");
    check("llmc.bin", TokenType::kAuto, 50257,
          " is read as uint16 behind the header of llm.c (data.element)");
    check("llmc.bin", TokenType::kUint16, 50257, "");
    check("llama3.bin", TokenType::kAuto, 128256,
          " is read as uint32 behind the header of llm.c (data.element)");
  }

  TEST_CASE("a folder of tokens: files with `val` in their names are split `validation`") {
    const testing::TempFolder folder;
    WriteFile(folder / "data/train.bin", BytesOfNumbers<std::uint16_t>({1, 2, 3, 4, 5}));
    WriteFile(folder / "data/val.bin", BytesOfNumbers<std::uint16_t>({9, 8, 7}));
    WriteFile(folder / "data/prepare.py", TextBytes("print()"));
    const Splits splits = Read("tokens", folder / "data", Windows(2));
    CHECK(splits.train.classes == 10);
    CHECK(splits.train.images() == 2);
    CHECK(splits.validation.images() == 1);
    CHECK(ReadSequence(splits.validation, 0).tokens == Tokens{9, 8});
    CHECK(MessageOf<ConfigError>(folder.path(),
                                 [&] { Read("tokens", folder / "data", Windows(2, 0.5)); }) ==
          "data.validation: DIR/data/val.bin is split `validation` already; leave the key out");
    std::filesystem::remove(folder / "data/train.bin");
    CHECK(MessageOf(folder.path(), [&] { Read("tokens", folder / "data", Windows(2)); }) ==
          "DIR/data: all its files *.bin have \"val\" in their names; expected some to train on, "
          "such as train.bin");
  }

  TEST_CASE("several folders of tokens are held back from alike, files that are named are not") {
    const testing::TempFolder folder;
    for (const std::string name : {"a", "b"}) {
      WriteFile(folder / (name + "/train.bin"), BytesOfNumbers<std::uint16_t>({1, 2, 3}));
      WriteFile(folder / (name + "/val.bin"), BytesOfNumbers<std::uint16_t>({9, 8, 7, 6, 5}));
    }
    FileChoices choices = Windows(2);
    choices.more_paths = {folder / "b"};
    const Splits splits = Read("tokens", folder / "a", choices);
    CHECK(splits.train.tokens->files() ==
          std::vector<std::string>{folder / "a/train.bin", folder / "b/train.bin"});
    CHECK(splits.validation.tokens->files() ==
          std::vector<std::string>{folder / "a/val.bin", folder / "b/val.bin"});
    choices.more_paths = {folder / "b/val.bin"};
    const Splits named = Read("tokens", folder / "a", choices);
    CHECK(named.train.tokens->files().back() == folder / "b/val.bin");
    CHECK(named.validation.images() == 2);
  }

  TEST_CASE("what is no file of tokens is refused with file and place") {
    const testing::TempFolder folder;
    const auto message = [&](const Bytes& bytes, const FileChoices& choices) {
      WriteFile(folder / "t.bin", bytes);
      return MessageOf(folder.path(), [&] { Read("tokens", folder / "t.bin", choices); });
    };
    const std::vector<std::uint16_t> tokens = {1, 2, 3, 4, 5, 6};
    CHECK(message({1, 2, 3}, Windows(1)) ==
          "DIR/t.bin: has 3 bytes of tokens; expected a multiple of 2, tokens being uint16 "
          "(data.element)");
    CHECK(message(WithHeader(20240520, 2, 6, tokens), Windows(1)) ==
          "DIR/t.bin: byte 4: version 2 of llm.c's format; expected 1");
    CHECK(message(WithHeader(20240520, 1, 7, tokens), Windows(1)) ==
          "DIR/t.bin: byte 8: the header says 7 tokens; the file has 6 of uint16");
    CHECK(message(BytesOfNumbers<std::int32_t>({20240520, 1, 0}), Windows(1)) ==
          "DIR/t.bin: ends within the header of llm.c; expected 1024 bytes");
    FileChoices wide = Windows(1);
    wide.token_type = TokenType::kUint32;
    CHECK(message(WithHeader(20240520, 1, 6, tokens), wide) ==
          "DIR/t.bin: the header says uint16 tokens, and data.element is uint32");
    CHECK(message(BytesOfNumbers(std::vector<std::uint32_t>(20, 7)), Windows(1)) ==
          "DIR/t.bin: as uint16 every second token would be 0: it looks like uint32; say which it "
          "is: data.element: uint32 or uint16");
    CHECK(message(BytesOfNumbers<std::uint32_t>({1, 2, 4'000'000}), wide) ==
          "DIR/t.bin: token 2 (byte 8) is 4000000; expected 0 to 999999, the vocabulary; is it "
          "uint16 (data.element)?");
    std::vector<std::uint32_t> llama;
    for (std::uint32_t i = 0; i < 64; ++i) llama.push_back(i * 2003 % 128'256);
    CHECK(
        message(BytesOfNumbers(llama), Windows(1)) ==
        "DIR/t.bin: as uint16 every second token would be 0 to 1: it looks like uint32; say which "
        "it is: data.element: uint32 or uint16");
    FileChoices narrow = Windows(1);
    narrow.token_type = TokenType::kUint16;
    narrow.vocabulary = 2500;
    CHECK(message(BytesOfNumbers(llama), narrow) ==
          "DIR/t.bin: token 4 (byte 8) is 4006; expected 0 to 2499, the vocabulary; the file looks "
          "like uint32 (data.element)");
    CHECK(message(BytesOfNumbers<std::uint16_t>({1, 20, 3, 40}), wide) ==
          "DIR/t.bin: token 0 (byte 0) is 1310721; expected 0 to 999999, the vocabulary; is it "
          "uint16 (data.element)?");
    std::vector<std::uint32_t> padded = llama;
    padded[3] = static_cast<std::uint32_t>(-100);
    CHECK(message(BytesOfNumbers(padded), wide) ==
          "DIR/t.bin: token 3 (byte 12) is 4294967196; expected 0 to 999999, the vocabulary; as "
          "int32 it is -100");
    const std::vector<std::int64_t> long_ones(llama.begin(), llama.end());
    CHECK(message(BytesOfNumbers(long_ones), Windows(1)) ==
          "DIR/t.bin: as uint16 every second token would be 0 to 1, as uint32 every second one "
          "would be 0: it looks like int64; write it as uint16 or uint32, or as .npy, whose header "
          "says it");
    CHECK(message(TextBytes("PK\x03\x04 and so on"), Windows(1)) ==
          "DIR/t.bin: is a ZIP archive, not numbers alone; expected tokens of uint16 or uint32, or "
          ".npy");
    CHECK(message(TextBytes(std::string(200, 'a')), Windows(1)) ==
          "DIR/t.bin: is a text, not numbers; data.dataset: text learns its bytes");
    FileChoices few = Windows(2);
    few.vocabulary = 5;
    CHECK(message(BytesOfNumbers(tokens), few) ==
          "DIR/t.bin: token 4 (byte 8) is 5; expected 0 to 4, the vocabulary");
    CHECK(message(WithHeader(20240520, 1, 6, tokens), few) ==
          "DIR/t.bin: token 4 (byte 1032) is 5; expected 0 to 4, the vocabulary");
    CHECK(message(BytesOfNumbers(tokens), Windows(6)) ==
          "DIR/t.bin: split train has 6 tokens, too few for one window of 6 and the token after it "
          "(data.context)");
    CHECK(message(BytesOfNumbers(tokens), Windows(2, 0.3)) ==
          "DIR/t.bin: split validation has 2 tokens, too few for one window of 2 and the token "
          "after it (data.context)");
    CHECK(message({}, Windows(1)) == "DIR/t.bin: cannot be mapped into memory: the file is empty");
    CHECK(MessageOf(folder.path(), [&] { Read("text", folder / "*.txt", Windows(1)); }) ==
          "DIR/*.txt: no file in DIR has such a name");
    std::filesystem::create_directory(folder / "none");
    CHECK(MessageOf(folder.path(), [&] { Read("tokens", folder / "none", Windows(1)); }) ==
          "DIR/none: no file *.bin in this folder");
    CHECK(MessageOf(folder.path(), [&] { Read("jargon", folder / "none", Windows(1)); })
              .starts_with("DIR/none/jargon.txt: no such file; fetch it: ada-train fetch "
                           "jargon --to DIR/none"));
  }

  TEST_CASE("a type that the user says is followed, with a warning where the file looks wider") {
    const testing::TempFolder folder;
    std::vector<std::int64_t> tokens;
    for (std::int64_t i = 0; i < 64; ++i) tokens.push_back(i % 50);
    const auto warning = [&](const Bytes& bytes, TokenType type) {
      WriteFile(folder / "t.bin", bytes);
      FileChoices choices = Windows(1);
      choices.token_type = type;
      FileFaults faults;
      choices.faults = &faults;
      const Splits splits = Read("tokens", folder / "t.bin", choices);
      CHECK(faults.size() == splits.warnings.size());
      if (splits.warnings.empty()) return std::string();
      CHECK(faults[0].kind == FaultKind::kEncoding);
      CHECK_FALSE(faults[0].ends_run);
      return splits.warnings[0].substr(folder.path().size() + 1);
    };
    const std::vector<std::uint32_t> wide(tokens.begin(), tokens.end());
    const std::vector<std::uint16_t> narrow(tokens.begin(), tokens.end());
    CHECK(warning(BytesOfNumbers(tokens), TokenType::kUint32) ==
          "t.bin: as uint32 (data.element) every second token is 0: it looks like int64; write it "
          "as uint16 or uint32, or as .npy");
    CHECK(warning(BytesOfNumbers(wide), TokenType::kUint16) ==
          "t.bin: as uint16 (data.element) every second token is 0: it looks like uint32");
    CHECK(warning(BytesOfNumbers(wide), TokenType::kUint32).empty());
    CHECK(warning(BytesOfNumbers(narrow), TokenType::kUint16).empty());
    CHECK(warning(BytesOfNumbers(narrow), TokenType::kAuto).empty());
    auto cut = narrow;
    cut.resize(cut.size() + 511);
    CHECK(warning(BytesOfNumbers(cut), TokenType::kAuto).empty());
    cut.push_back(0);
    CHECK(warning(BytesOfNumbers(cut), TokenType::kAuto) ==
          "t.bin: the last 512 of 576 tokens are 0: is it whole?");
    std::vector<float> floats(1024);
    for (std::size_t i = 0; i < floats.size(); ++i) floats[i] = static_cast<float>(7 * i + 1);
    CHECK(warning(BytesOfNumbers(floats), TokenType::kAuto) ==
          "t.bin: read as uint16 (data.element): what stands at even and at odd places differs, as "
          "of floats, or of wider numbers");
    CHECK(warning(TextBytes(std::string(200, 'a')), TokenType::kUint16) ==
          "t.bin: is a text, and its bytes are read as uint16 (data.element)");
    CHECK(warning(TextBytes("PK\x03\x04 and so on"), TokenType::kUint16) ==
          "t.bin: is a ZIP archive, and its bytes are read as uint16 (data.element)");
  }

  TEST_CASE("files of NumPy say the type of their tokens") {
    const testing::TempFolder folder;
    const auto npy = [](const std::string& descr, const std::string& shape, const Bytes& values) {
      std::string header =
          "{'descr': '" + descr + "', 'fortran_order': False, 'shape': (" + shape + "), }";
      header.resize(117, ' ');
      header += '\n';
      Bytes bytes = TextBytes(std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header);
      bytes.insert(bytes.end(), values.begin(), values.end());
      return bytes;
    };
    const auto check = [&](const std::string& descr, const std::string& name, const Bytes& values) {
      WriteFile(folder / "t.npy", npy(descr, "6,", values));
      const Splits splits = Read("tokens", folder / "t.npy", Windows(2));
      CHECK(splits.note ==
            folder / "t.npy is read as " + name + " behind the header of NumPy (data.element)");
      CHECK(splits.train.classes == 301);
      CHECK(ReadSequence(splits.train, 1).tokens == Tokens{3, 300});
      CHECK(ReadSequence(splits.train, 1).targets == Tokens{300, 5});
    };
    check("<u2", "uint16", BytesOfNumbers<std::uint16_t>({1, 2, 3, 300, 5, 6}));
    check("<i2", "int16", BytesOfNumbers<std::int16_t>({1, 2, 3, 300, 5, 6}));
    check("<u4", "uint32", BytesOfNumbers<std::uint32_t>({1, 2, 3, 300, 5, 6}));
    check("<i4", "int32", BytesOfNumbers<std::int32_t>({1, 2, 3, 300, 5, 6}));
    check("<i8", "int64", BytesOfNumbers<std::int64_t>({1, 2, 3, 300, 5, 6}));
    check("<u8", "uint64", BytesOfNumbers<std::uint64_t>({1, 2, 3, 300, 5, 6}));
    const auto message = [&](const Bytes& bytes, TokenType type = TokenType::kAuto) {
      WriteFile(folder / "t.npy", bytes);
      FileChoices choices = Windows(1);
      choices.token_type = type;
      return MessageOf(folder.path(), [&] { Read("tokens", folder / "t.npy", choices); });
    };
    CHECK(message(npy("<i8", "3,", BytesOfNumbers<std::int64_t>({1, -100, 3}))) ==
          "DIR/t.npy: token 1 (byte 136) is -100; expected 0 to 999999, the vocabulary");
    CHECK(message(npy("<i8", "2,", BytesOfNumbers<std::int64_t>({1, std::int64_t{1} << 32}))) ==
          "DIR/t.npy: token 1 (byte 136) is 4294967296; expected 0 to 999999, the vocabulary");
    CHECK(message(npy("<u8", "2,", BytesOfNumbers<std::uint64_t>({1, UINT64_MAX}))) ==
          "DIR/t.npy: token 1 (byte 136) is 18446744073709551615; expected 0 to 999999, the "
          "vocabulary");
    CHECK(message(npy("<i4", "3,", BytesOfNumbers<std::int32_t>({1, -1, 3}))) ==
          "DIR/t.npy: token 1 (byte 132) is -1; expected 0 to 999999, the vocabulary");
    CHECK(message(npy("<f4", "1,", Bytes(4))) ==
          "DIR/t.npy: elements are F32; expected whole numbers (uint16, int64, ...)");
    CHECK(message(npy("<u2", "2, 3", Bytes(12))) ==
          "DIR/t.npy: has the shape [2, 3]; expected [tokens], all one after the other (rows that "
          "are sequences: data.dataset: tensors)");
    CHECK(message(npy("<u2", "7,", Bytes(12))) ==
          "DIR/t.npy: the header says 7 tokens; the file has 6 of uint16");
    CHECK(message(npy("<i8", "3,", BytesOfNumbers<std::int64_t>({1, 2, 3})), TokenType::kUint16) ==
          "DIR/t.npy: the header says int64 tokens, and data.element is uint16");
  }

  TEST_CASE("folders that a path passes over are named, with the pattern that takes their files") {
    const testing::TempFolder folder;
    for (const std::string name : {"README", "AA/one", "AA/two", "AB/one", "AB/C/deep"})
      WriteFile(folder / ("corpus/" + name), TextBytes("some words of " + name));
    std::filesystem::create_directories(folder / "corpus/empty");
    std::filesystem::create_directories(folder / "corpus/.git/x");
    const auto read = [&](const std::string& path, std::vector<std::string> more = {}) {
      FileChoices choices = Windows(3);
      for (const std::string& one : more) choices.more_paths.push_back(folder / one);
      return Read("text", folder / path, choices);
    };
    const auto names = [&](const Splits& splits) {
      std::vector<std::string> files = splits.train.tokens->files();
      for (std::string& file : files) file.erase(0, folder.path().size() + 8);
      return files;
    };
    const std::string corpus = folder / "corpus";
    Splits splits = read("corpus");
    CHECK(names(splits) == std::vector<std::string>{"README"});
    CHECK(splits.warnings ==
          std::vector<std::string>{corpus + ": 2 folders in it are not read: AA, AB (data.path: " +
                                   corpus + "/*/* takes their files)"});
    splits = read("corpus/*/*");
    CHECK(names(splits) == std::vector<std::string>{"AA/one", "AA/two", "AB/one"});
    CHECK(splits.warnings == std::vector<std::string>{
                                 corpus + "/*/*: 1 folder that matches it is not read: " + corpus +
                                 "/AB/C (data.path: " + corpus + "/*/*/* takes its files)"});
    CHECK(names(read("corpus/A?/o*")) == std::vector<std::string>{"AA/one", "AB/one"});
    CHECK(names(read("c[a-o]rpus/*/C/*")) == std::vector<std::string>{"AB/C/deep"});
    CHECK(read("corpus/AA").warnings.empty());
    splits = read("corpus", {"corpus/AA", "corpus/AB", "corpus/AB/C"});
    CHECK(names(splits).size() == 5);
    CHECK(splits.warnings.empty());
    CHECK(MessageOf(folder.path(), [&] { read("corpus/*/*/*/*"); }) ==
          "DIR/corpus/*/*/*/*: no file has such a path");
    std::filesystem::remove(folder / "corpus/README");
    CHECK(MessageOf(folder.path(), [&] { read("corpus"); }) ==
          "DIR/corpus: no file in this folder; 2 folders in it are not read: AA, AB (data.path: "
          "DIR/corpus/*/* takes their files)");
    WriteFile(folder / "corpus/README", TextBytes("ab"));
    CHECK(MessageOf(folder.path(), [&] { read("corpus"); }) ==
          "DIR/corpus/README: split train has 2 tokens, too few for one window of 3 and the token "
          "after it (data.context); DIR/corpus: 2 folders in it are not read: AA, AB (data.path: "
          "DIR/corpus/*/* takes their files)");
    // A folder counts for tokens where it holds files *.bin.
    WriteFile(folder / "shards/0/a.bin", BytesOfNumbers<std::uint16_t>({1, 2, 3, 4}));
    WriteFile(folder / "shards/notes/a.txt", TextBytes("no tokens"));
    CHECK(MessageOf(folder.path(), [&] { Read("tokens", folder / "shards", Windows(2)); }) ==
          "DIR/shards: no file *.bin in this folder; 1 folder in it is not read: 0 (data.path: "
          "DIR/shards/*/*.bin takes its files)");
    CHECK(Read("tokens", folder / "shards/*/*.bin", Windows(2)).train.images() == 1);
  }

  TEST_CASE("a text that is none is told, one line a file") {
    const testing::TempFolder folder;
    const auto told = [&](const std::string& bytes) {
      WriteFile(folder / "t", TextBytes(bytes));
      FileChoices choices = Windows(1);
      FileFaults faults;
      choices.faults = &faults;
      const Splits splits = Read("text", folder / "t", choices);
      CHECK(faults.size() == splits.warnings.size());
      REQUIRE(splits.warnings.size() <= 1);
      return splits.warnings.empty() ? "" : splits.warnings[0].substr(folder.path().size() + 4);
    };
    using namespace std::string_literals;
    const std::string packed = ", not a text: its bytes are learned as they are";
    CHECK(told("plain words, \xc3\xa4 and \xff\n").empty());
    CHECK(told("\xef\xbb\xbfwith UTF-8's mark").empty());
    CHECK(told("BZh9 is how this text begins").empty());
    CHECK(told("\x1f\x8b\x08 ...") == "is packed by gzip" + packed);
    CHECK(told("BZh91AY&SY ...") == "is packed by bzip2" + packed);
    CHECK(told("\xfd\x37zXZ\0..."s) == "is packed by xz" + packed);
    CHECK(told("\x28\xb5\x2f\xfd...") == "is packed by zstd" + packed);
    CHECK(told("PK\x03\x04...") == "is a ZIP archive" + packed);
    CHECK(
        told("\xff\xfe"
             "a\0b\0"s) ==
        "begins with the mark of UTF-16, whose characters have 2 bytes each: bits per byte are of "
        "those; expected UTF-8");
    CHECK(told("\xfe\xff\0a\0b"s).starts_with("begins with the mark of UTF-16, "));
    CHECK(told("\xff\xfe\0\0a\0\0\0"s).starts_with("begins with the mark of UTF-32, "));
    CHECK(told("\0\0\xfe\xff\0\0\0a"s).starts_with("begins with the mark of UTF-32, "));
    CHECK(told(std::string(5934, 'x') + std::string(2000, '\0')) ==
          "2,000 of 7,934 bytes are 0: is it a text, and whole?");
    CHECK(told("\x40\0\0\0\0\0\0\0{\"a\":"s) == "is a file of safetensors" + packed);
    CHECK(told("GGUF\3\0\0\0"s) == "is a file of GGUF" + packed);
    CHECK(told(std::string(50, '\xe9') + std::string(5000, 'x') + "\xc3") ==
          "50 of 5,051 bytes are none of UTF-8: is it Latin-1, or no text?");
    CHECK(told(std::string(15, '\xe9') + "words").empty());  // spoilt, or cut
    WriteFile(folder / "t", TextBytes("version https://git-lfs.github.com/spec/v1"));
    CHECK(MessageOf(folder.path(), [&] { Read("text", folder / "t", Windows(100)); }) ==
          "DIR/t: split train has 42 tokens, too few for one window of 100 and the token after it "
          "(data.context); DIR/t is a pointer of Git LFS (git lfs pull)");
    CHECK(told("a\0b\0c\0d\0"s) == "4 of 8 bytes are 0, every second one: is it UTF-16?");
    // A part of a long file is looked at, its end too.
    WriteFile(folder / "t", TextBytes("words"));
    std::filesystem::resize_file(folder / "t", std::uint64_t{3} << 30);
    const Splits splits = Read("text", folder / "t", Windows(1));
    REQUIRE(splits.warnings.size() == 1);
    CHECK(
        splits.warnings[0].ends_with(" of the 16,777,216 bytes looked at are 0: is it a text, and "
                                     "whole?"));
  }

  TEST_CASE("a file that is cut while it is read, and a token that is written meanwhile") {
    const testing::TempFolder folder;
    const std::string path = folder / "t.bin";
    WriteFile(path, BytesOfNumbers<std::uint16_t>({1, 2, 3, 4, 5, 6, 7, 8}));
    FileChoices choices = Windows(3);
    choices.vocabulary = 9;
    const Splits splits = Read("tokens", path, choices);
    Loader loader(splits.train, InOrder(1));
    CHECK(loader.Next().tokens == Tokens{1, 2, 3});
    {
      std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
      file.seekp(8);
      file.write("\x63\0", 2);
    }
    Loader behind(splits.train, InOrder(1));
    CHECK(MessageOf(folder.path(), [&] {
            behind.Next();
            behind.Next();
          }) == "DIR/t.bin: token 4 (byte 8) is 99; expected 0 to 8, the vocabulary");
    std::filesystem::resize_file(path, 6);
    Loader cut(splits.train, InOrder(1));
    CHECK(MessageOf(folder.path(), [&] { cut.Next(); }) ==
          "DIR/t.bin: was cut to 6 of its 16 bytes while it was read");
  }

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
