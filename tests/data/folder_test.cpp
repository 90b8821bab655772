// Folders of pictures: which are found, in which order, and what is refused.
#include <doctest/doctest.h>

#include "data/folder/listing.h"
#include "data/readers.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

namespace fs = std::filesystem;

// A picture of its own: every byte is `value`.
void PutPicture(const std::string& path, int value, int height = 4, int width = 5) {
  fs::create_directories(fs::path(path).parent_path());
  Picture picture{height, width, 3, {}};
  picture.pixels.assign(static_cast<std::size_t>(height * width * 3),
                        static_cast<std::uint8_t>(value));
  WritePng(path, picture);
}

std::vector<std::string> Names(const Dataset& dataset, const std::string& root) {
  std::vector<std::string> names;
  for (std::int64_t i = 0; i < dataset.images(); ++i)
    names.push_back(dataset.store->NameOf(dataset.NumberInFiles(i)).substr(root.size() + 1));
  return names;
}

std::string Refusal(const testing::TempFolder& folder, const std::string& below = "") {
  return MessageOf(folder.path(), [&] { OpenFolder(folder.path() + below); });
}

void PutSplits(const testing::TempFolder& folder, const std::vector<std::string>& classes) {
  for (const std::string split : {"train", "val"})
    for (const std::string& name : classes) PutPicture(folder / (split + "/" + name + "/1.png"), 7);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("folder: classes and files in byte order, below class folders too, by their endings") {
    const testing::TempFolder folder;
    for (const char* name : {"train/b/2.png", "train/b/10.png", "train/b/x y/ä.PNG",
                             "train/b/x/deep/1.jpeg", "train/b/x/9.Jpg", "train/Z/1.png",
                             "train/é/1.png", "val/Z/1.png", "val/b/1.png", "val/é/1.png"})
      PutPicture(folder / name, 1);
    WriteFile(folder / "train/b/notes.txt", {1});
    WriteFile(folder / "train/loose.png", {1});  // of no class, as ImageFolder has it
    WriteFile(folder / "train/b/1.gif", {1});
    const Splits splits = OpenFolder(folder.path());
    CHECK(splits.class_names == std::vector<std::string>{"Z", "b", "é"});
    // sorted(os.walk(...)) compares whole paths: "b/x y" comes before "b/x/deep".
    CHECK(Names(splits.train, folder.path()) ==
          std::vector<std::string>{"train/Z/1.png", "train/b/10.png", "train/b/2.png",
                                   "train/b/x/9.Jpg", "train/b/x y/ä.PNG", "train/b/x/deep/1.jpeg",
                                   "train/é/1.png"});
    CHECK(splits.train.labels == std::vector<Label>{0, 1, 1, 1, 1, 1, 2});
    CHECK(splits.test.images() == 3);
    CHECK(splits.train.classes == 3);
    CHECK(SizeOfFirst(splits.train, false) == PictureSize{4, 5});
  }

  TEST_CASE("folder: val is taken before a test folder that has none of the classes") {
    const testing::TempFolder folder;
    PutSplits(folder, {"a", "b"});
    CHECK(OpenFolder(folder.path()).note.empty());
    PutPicture(folder / "test/c/1.png", 1);
    const Splits splits = OpenFolder(folder.path());
    CHECK(Names(splits.test, folder.path()).front() == "val/a/1.png");
    CHECK(splits.note.find("/test has none of the classes and is not read") != std::string::npos);
    fs::remove_all(folder / "val");
    fs::rename(folder / "test/c", folder / "test/a");
    PutPicture(folder / "test/b/1.png", 1);
    CHECK(Names(OpenFolder(folder.path()).test, folder.path()).front() == "test/a/1.png");
  }

  TEST_CASE(
      "folder: pictures without classes beside train are passed over where some are held back") {
    const testing::TempFolder folder;
    for (int i = 0; i < 10; ++i)
      for (const char* name : {"train/a/", "train/b/", "test/"})
        PutPicture(folder / (name + std::to_string(i) + ".png"), i);
    FileChoices choices;
    choices.held_back.share = 0.2;
    const Splits splits = OpenFolder(folder.path(), choices);
    CHECK(splits.train.images() == 16);
    CHECK(splits.test.images() == 4);
    CHECK(splits.note.find("/test has none of the classes and is not read") != std::string::npos);
    choices.limit_train = 10;  // images of which two are held back
    const Splits limited = OpenFolder(folder.path(), choices);
    CHECK(limited.train.images() == 8);
    CHECK(limited.test.images() == 2);
  }

  TEST_CASE("folder: what is refused, and why") {
    const testing::TempFolder folder;
    CHECK(Refusal(folder, "/none").starts_with("DIR/none: no such folder; expected PATH/train/"));
    WriteFile(folder / "file", {1});
    CHECK(Refusal(folder, "/file").starts_with("DIR/file: not a folder; expected"));
    CHECK(Refusal(folder).starts_with("DIR: holds no folder train; expected PATH/train/CLASS"));
    PutSplits(folder, {"a", "b"});
    CHECK(Refusal(folder) == "");
    CHECK(Refusal(folder, "/train")
              .starts_with("DIR/train: holds folders with pictures, so it is "
                           "one split and not the set"));
    CHECK(Refusal(folder, "/train")
              .ends_with("give the folder above it (DIR) if it has both; or data.validation: 0.2 "
                         "holds a fifth of each class back"));

    fs::create_directories(folder / "train/empty");
    fs::create_directories(folder / "val/empty");
    CHECK(Refusal(folder).starts_with("DIR/train: classes without pictures: empty; expected"));
    fs::remove(folder / "train/empty"), fs::remove(folder / "val/empty");

    PutPicture(folder / "val/c/1.png", 1);
    CHECK(Refusal(folder).starts_with(
        "DIR/val: class folders that DIR/train does not have: c; expected the same"));
    fs::remove_all(folder / "val/c");
    fs::remove_all(folder / "val/b");
    CHECK(Refusal(folder).starts_with("DIR/val: no folder for classes of DIR/train: b; expected"));
    fs::rename(folder / "val/a", folder / "val/other");
    CHECK(Refusal(folder) ==
          "DIR/val: has none of the classes of DIR/train (a, b), but other: "
          "these are two different data sets");
    fs::remove_all(folder / "val");
    CHECK(Refusal(folder).starts_with(
        "DIR: holds train, but neither val (valid, validation, dev) nor test; expected"));
  }

  TEST_CASE("folder: a root within a root, links without an end, links that lead nowhere") {
    const testing::TempFolder folder;
    PutSplits(folder, {"a", "b"});
    for (const char* name : {"train/train/a/1.png", "train/val/a/1.png"})
      PutPicture(folder / name, 1);
    CHECK(
        Refusal(folder).starts_with("DIR/train: holds a folder train that holds folders itself: "
                                    "a data set lies within a data set"));
    fs::remove_all(folder / "train/train"), fs::remove_all(folder / "train/val");
    fs::create_directory_symlink("..", folder / "train/a/up");
    CHECK(Refusal(folder) ==
          "DIR/train/a/up: a link that leads back to a folder above it, so its "
          "pictures would have no end; remove it");
    fs::remove(folder / "train/a/up");
    fs::create_directory_symlink("../b", folder / "train/a/twice");  // as os.walk follows it
    fs::create_symlink("loop.png", folder / "train/b/loop.png");
    const Splits splits = OpenFolder(folder.path());
    CHECK(Names(splits.train, folder.path()) ==
          std::vector<std::string>{"train/a/1.png", "train/a/twice/1.png", "train/a/twice/loop.png",
                                   "train/b/1.png", "train/b/loop.png"});
    CHECK_THROWS_AS(splits.train.store->Read(4, [](PictureSize) { return Box(); }), DataError);
  }

  TEST_CASE("folder: limits and validation are spread over the classes") {
    const testing::TempFolder folder;
    for (int i = 0; i < 6; ++i)
      for (const char* name : {"train/a/", "train/b/", "val/a/", "val/b/"})
        PutPicture(folder / (name + std::to_string(i) + ".png"), i);
    Dataset train = OpenFolder(folder.path()).train;
    Limit(train, 8);
    CHECK(train.labels == std::vector<Label>{0, 0, 0, 0, 1, 1, 1, 1});
    const Dataset held_back = SplitLast(train, 2);
    CHECK(held_back.labels == std::vector<Label>{0, 1});
    CHECK(train.labels == std::vector<Label>{0, 0, 0, 1, 1, 1});
    std::vector<std::uint32_t> all = train.picked;
    all.insert(all.end(), held_back.picked.begin(), held_back.picked.end());
    std::sort(all.begin(), all.end());
    CHECK(all == std::vector<std::uint32_t>{0, 2, 3, 5, 6, 8, 9, 11});
  }

  TEST_CASE("folder: the first picture of another size is named") {
    const testing::TempFolder folder;
    PutSplits(folder, {"a", "b"});
    PutPicture(folder / "train/b/2.png", 1, 5, 5);
    const Splits splits = OpenFolder(folder.path());
    const auto same = [](PictureSize size) { return size; };
    CHECK(MessageOf(folder.path(),
                    [&] {
                      RequireOneSize(splits.train, {4, 5}, same, false);
                    })
              .starts_with(
                  "DIR/train/b/2.png: 5 x 5 pixels, and the first picture gives 5 x 4 pixels: the "
                  "network takes one size; set data.resize and data.center_crop"));
    WriteFile(folder / "train/a/0.png", {});
    const Splits broken = OpenFolder(folder.path());
    CHECK(MessageOf(folder.path(), [&] {
            SizeOfFirst(broken.train, false);
          }).starts_with("DIR/train/a/0.png: "));
    CHECK(SizeOfFirst(broken.train, true) == PictureSize{4, 5});
  }
}

}  // namespace ada::data
