// Files of tokens as nanoGPT, llm.c and NumPy write them, texts among them that are none, and
// everything that is refused.
#include <doctest/doctest.h>

#include "tokens_lab.h"

namespace ada::data {

TEST_SUITE("cpu") {
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
          " is read as uint16 after the header of llm.c (data.element)");
    check("llmc.bin", TokenType::kUint16, 50257, "");
    check("llama3.bin", TokenType::kAuto, 128256,
          " is read as uint32 after the header of llm.c (data.element)");
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
            folder / "t.npy is read as " + name + " after the header of NumPy (data.element)");
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
}

}  // namespace ada::data
