// Files that are left out (data.on_broken: skip), by the program: said with split and file wherever
// they matter, and files that the machine does not give are none of them.
#include <filesystem>

#include "sanitizer.h"
#include "skip.h"
#include "train/made_up_sets.h"
#include "train/shell.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;
const Arguments kSkip = {"--set", "data.on_broken=skip"};

// The values of events `broken_image` whose message begins with `message`, each once.
std::set<std::string> Broken(const std::string& run, const std::string& message) {
  std::set<std::string> files;
  for (const GoldenRow& row : RowsWhere(ReadCsv(run + "/events.csv"), "event", "broken_image"))
    if (row.at("message").starts_with(message)) files.insert(row.at("value"));
  return files;
}

TEST_SUITE("cpu") {
  TEST_CASE("segmentation: broken label images are named with their split, in runs and commands") {
    const TempFolder folder;
    WriteCamvid(folder, "shapes", 20, 7);
    const Arguments run = WriteConfig(folder, "run", kSegmentationRun);
    const std::string train = "shapes/trainannot/image103.png";
    const std::string test = "shapes/testannot/image102.png";
    folder.Write(train, "no PNG");
    const Outcome failed = Run(run, folder.path());
    ADA_CHECK_EXIT(failed, 3);
    CHECK(Contains(failed.err, train + ": "));
    folder.Write(test, "no PNG");
    const Outcome skipped = Run(With(With(run, kSkip), {"--epochs", "5"}), folder.path());
    ADA_REQUIRE_EXIT(skipped, 0);
    CHECK(Contains(skipped.err, "class weights (median_frequency of 19 label images)"));
    CHECK(Broken(folder / "run", "left out of split train: " + train) ==
          std::set<std::string>{train});
    CHECK(Broken(folder / "run", "left out of split test: " + test) == std::set<std::string>{test});
    CHECK(Contains(skipped.err, "split train: " + train + ": is text"));
    CHECK(Contains(skipped.err, "split test: " + test + ": is text"));
    CHECK(Contains(skipped.out, "2 images left out because they cannot be read (events.csv):"));
    CHECK(Contains(skipped.out, test + ","));
    CHECK(Contains(skipped.out, train));
    for (const Arguments& command :
         {Arguments{"evaluate", "run"},
          Arguments{"predict", "shapes/test/image100.png", "--checkpoint", "run"},
          Arguments{"datasets", "--preview", "sheet.png", "--config", "run/config.yaml"}}) {
      CAPTURE(command);
      const Outcome told = Run(command, folder.path());
      ADA_CHECK_EXIT(told, 0);
      // The first batch of the sheet may not have it.
      if (command[0] != "datasets")
        CHECK(Contains(told.err, "split train: " + train + ": is text"));
      if (command[0] == "evaluate") CHECK(Contains(told.err, "split test: " + test + ": is text"));
    }
    for (int i = 100; i < 120; ++i)
      folder.Write("shapes/trainannot/image" + std::to_string(i) + ".png", "");
    const Outcome none = Run({"evaluate", "run"}, folder.path());
    ADA_CHECK_EXIT(none, 3);
    CHECK(Contains(none.err, "none of the training images can be read"));
  }

  TEST_CASE("detection: images that lists name are left out by split, in events and commands") {
    const TempFolder folder;
    WriteVoc(folder, "shapes", 12, 5);
    const Arguments run = WriteConfig(folder, "run", kDetectionRun);
    const std::string train = "shapes/Annotations/trainval103.xml";
    const std::string test = "shapes/JPEGImages/test101.jpg";
    folder.Write(train, "no XML");
    std::filesystem::remove(folder / test);
    ADA_REQUIRE_EXIT(Run(With(With(run, kSkip), {"--epochs", "1"}), folder.path()), 0);
    CHECK(Broken(folder / "run", "left out of split train: ") == std::set<std::string>{train});
    CHECK(Broken(folder / "run", "left out of split test: ") == std::set<std::string>{test});
    const std::string line = "split train: " + train + ": line 1: ";
    CHECK(Contains(Run({"evaluate", "run"}, folder.path()).err, line));
    CHECK(Contains(Run({"train", "run/config.yaml", "--dry-run"}, folder.path()).out, line));
    CHECK(Contains(
        Run({"datasets", "--preview", "a.png", "--config", "run/config.yaml"}, folder.path()).out,
        line));
  }

  TEST_CASE("what the machine does not give is no broken file: exit code 4, or the same weights") {
    if (const std::string why = WhyNoFaults(); !why.empty()) ADA_SKIP(why);
    const TempFolder folder;
    WriteVoc(folder, "shapes", 8, 3);
    const Arguments run =
        With(With(WriteConfig(folder, "run", kDetectionRun), kSkip), {"--epochs", "2"});
    ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
    const std::string weights = NewestCheckpoint(folder / "run");
    const std::string good = ReadBytes(weights);
    std::string line;
    for (const std::string& argument : run) line += " " + argument;
    for (const char* fault :
         {"inject=openat:error=EMFILE:when=2+ -P shapes/JPEGImages/trainval102.jpg",
          "inject=openat:error=ENFILE -P shapes/JPEGImages/trainval102.jpg",
          "inject=pread64:error=EIO:when=3 -P shapes/JPEGImages/trainval102.jpg",
          "inject=pread64:error=EIO -P shapes/JPEGImages/trainval102.jpg",
          "inject=openat:error=ESTALE -P shapes/Annotations/trainval102.xml",
          "inject=read:error=ETIMEDOUT -P shapes/Annotations/test101.xml",
          "inject=openat:error=ENOMEM -P shapes/ImageSets/Main/test.txt",
          "inject=openat:error=EACCES:when=2+ -P shapes/JPEGImages/trainval102.jpg"}) {
      CAPTURE(fault);
      const Outcome o = Shell(folder, Faulty(fault) + line + " --overwrite");
      const bool of_user = Contains(fault, "EACCES");
      ADA_CHECK_EXIT(o, of_user ? 0 : 4);
      CHECK(Contains(o.err, "shapes/"));
      CHECK(Contains(o.err, "left out") == of_user);
    }
    for (const int descriptors : {12, 14, 15, 16, 17, 18}) {
      CAPTURE(descriptors);
      const Outcome o = Shell(folder, "ulimit -n " + std::to_string(descriptors) + "; $ADA" + line +
                                          " --overwrite --set data.workers=8");
      CHECK_FALSE(Contains(o.err, "left out"));
      // UBSan looks up types through a descriptor, and ends a program that has none left.
      CHECK((kShadowMemory || o.code == 0 || o.code == 3 || o.code == 4 || o.code == 6));
      if (o.code == 0) CHECK(ReadBytes(weights) == good);
    }
  }
}

}  // namespace
}  // namespace ada::testing
