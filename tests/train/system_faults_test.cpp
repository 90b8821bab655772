// The system fails or is taken away under a run: calls that end with errors, closed streams, a
// limit on files, a folder that is deleted meanwhile. Nothing is lost without a word.
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "skip.h"
#include "train/shell.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;
const std::string kRun = "--config run.yaml --output run ";

// A run in folder "run" that was killed just before its summary; "whole" was not.
void MakeUnfinished(const TempFolder& folder) {
  ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "whole", SmallRun()), folder.path()), 0);
  ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "run", SmallRun()), folder.path()), 0);
  std::filesystem::remove(folder / "run/summary.json");
}

std::map<std::string, std::string> Snapshot(const std::string& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) files[entry.path().string()] = ReadBytes(entry.path());
  return files;
}

// Starts a run that would be long and calls `disturb` once steps.csv has rows.
template <class Disturb>
Outcome Disturbed(const TempFolder& folder, const Disturb& disturb) {
  Child child(With(WriteConfig(folder, "run", SmallRun()), {"--set", "train.epochs=100000"}),
              folder.path());
  REQUIRE(child.WaitUntil([&] { return RowCount(folder / "run/steps.csv") >= 6; }));
  disturb();
  return child.Wait();
}

TEST_SUITE("cpu") {
  TEST_CASE("a folder of checkpoints that cannot be listed: refused, nothing is touched") {
    if (const std::string why = WhyNoFaults(); !why.empty()) ADA_SKIP(why);
    const TempFolder folder;
    MakeUnfinished(folder);
    const auto before = Snapshot(folder / "run");
    for (const char* fault : {"inject=openat:error=EIO -P run/checkpoints",
                              "inject=getdents64:error=EIO -P run/checkpoints",
                              "inject=getdents64:error=EIO:when=2+ -P run/checkpoints",
                              "inject=openat:error=ENOMEM -P run/checkpoints"}) {
      CAPTURE(fault);
      for (const char* how : {"--resume", "--resume --set train.epochs=9", ""}) {
        const Outcome o = Shell(folder, Faulty(fault) + kRun + how);
        ADA_CHECK_EXIT(o, 4);
        CHECK(Contains(o.err, "run/checkpoints: the folder cannot be read: "));
        CHECK(Snapshot(folder / "run") == before);
      }
    }
    ADA_REQUIRE_EXIT(Shell(folder, "$ADA --no-progress " + kRun + "--resume"), 0);
    CHECK(Differences(folder / "whole", folder / "run") == std::vector<std::string>{});
  }

  TEST_CASE("the first time that a folder is read fails: a resume loses nothing") {
    if (const std::string why = WhyNoFaults(); !why.empty()) ADA_SKIP(why);
    for (const char* call : {"openat", "getdents64"})
      for (const char* when : {"1", "2", "3"}) {
        const TempFolder folder;
        MakeUnfinished(folder);
        const std::string fault = std::string("inject=") + call + ":error=EIO:when=" + when;
        CAPTURE(fault);
        const Outcome o =
            Shell(folder, Faulty(fault + " -P run/checkpoints -P run") + kRun + "--resume");
        INFO(o.err);
        CHECK((o.code == 0 || o.code == 4 || o.code == 6));
        ADA_REQUIRE_EXIT(Shell(folder, "$ADA --no-progress " + kRun + "--resume"), 0);
        CHECK(Differences(folder / "whole", folder / "run") == std::vector<std::string>{});
        CHECK(!Contains(ReadBytes(folder / "run/log.txt"), "afresh"));
      }
  }

  TEST_CASE("a call that a signal cut short is made again") {
    if (const std::string why = WhyNoFaults(); !why.empty()) ADA_SKIP(why);
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "whole", SmallRun()), folder.path()), 0);
    WriteConfig(folder, "run", SmallRun());
    for (const std::string call : {"openat", "fsync", "close", "rename", "write"}) {
      CAPTURE(call);
      // Those of starting a program are the loader's.
      const std::string when = call == "openat" || call == "close" ? ":when=40+3" : ":when=1+2";
      const Outcome o =
          Shell(folder, Faulty("inject=" + call + ":error=EINTR" + when) + kRun + "--overwrite");
      ADA_CHECK_EXIT(o, 0);
      CHECK(Differences(folder / "whole", folder / "run") == std::vector<std::string>{});
    }
  }

  TEST_CASE("closed standard streams: no file takes their place") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(WriteConfig(folder, "whole", SmallRun()), folder.path()), 0);
    WriteConfig(folder, "run", SmallRun());
    for (const char* closed : {"<&- >&- 2>&-", "2>&-", "<&-", ">&- 2>&-"}) {
      CAPTURE(closed);
      ADA_CHECK_EXIT(Shell(folder, "$ADA " + kRun + "--overwrite " + closed), 0);
      CHECK(Differences(folder / "whole", folder / "run") == std::vector<std::string>{});
      CHECK(ReadBytes(folder / "run/.lock").empty());
    }
    CHECK(Shell(folder, "$ADA models >&-").code == 6);  // what was asked for is not there
  }

  TEST_CASE("a run whose folder or log is taken away ends, and makes nothing in its place") {
    const TempFolder folder;
    const std::string run = folder / "run", gone = folder / "gone";
    const Outcome moved = Disturbed(folder, [&] { std::filesystem::rename(run, gone); });
    ADA_CHECK_EXIT(moved, 6);
    CHECK(Contains(moved.err, ".csv: was deleted, moved or replaced"));
    CHECK(!std::filesystem::exists(run));
    std::filesystem::remove_all(gone);
    for (const std::string name : {"steps.csv", "underflow.csv"}) {
      CAPTURE(name);
      const Outcome replaced = Disturbed(folder, [&] {
        std::filesystem::copy(run + "/" + name, folder / "copy");
        std::filesystem::rename(folder / "copy", run + "/" + name);
      });
      ADA_CHECK_EXIT(replaced, 6);
      CHECK(Contains(replaced.err, name + ": was deleted, moved or replaced"));
      CHECK(!std::filesystem::exists(run + "/summary.json"));
      std::filesystem::remove_all(run);
    }
    const Outcome text = Disturbed(folder, [&] {
      std::filesystem::remove(run + "/log.txt");
      std::filesystem::remove(run + "/events.csv");
    });
    ADA_CHECK_EXIT(text, 6);
    CHECK(Contains(text.err, "events.csv: was deleted"));
  }

  TEST_CASE("a run that starts while it is watched is not kept out") {
    const TempFolder folder;
    MakeUnfinished(folder);
    Child watch({"watch", "run", "--interval", "0.1"}, folder.path());
    for (int i = 0; i < 5; ++i)
      ADA_CHECK_EXIT(Shell(folder, "$ADA --no-progress " + kRun + "--overwrite"), 0);
  }

  TEST_CASE("a FIFO in the place of a file: refused at once; YAML may come from a pipe") {
    const TempFolder folder;
    MakeUnfinished(folder);
    const std::string limit = "timeout 20 $ADA ";
    CHECK(Shell(folder, "mkfifo p && " + limit + "--config p").code == 2);
    CHECK(Shell(folder, limit + "replay --scaling p --trace p").code == 2);
    CHECK(Shell(folder, limit + "inspect p").code == 3);
    CHECK(Shell(folder, limit + "evaluate --checkpoint p").code == 3);
    for (const char* name : {"steps.csv", "summary.json", "underflow.csv", "config.yaml", "log.txt",
                             "checkpoints/step-00000048.json", ".lock"}) {
      CAPTURE(name);
      const std::string path = std::string("run/") + name;
      for (const char* command : {"compare run whole", "watch run --once", "what-if run",
                                  "--config run.yaml --output run --no-progress --resume"}) {
        const Outcome o =
            Shell(folder, "mv " + path + " kept && mkfifo " + path + "; " + limit + command +
                              "; code=$?; mv kept " + path + "; exit $code");
        INFO(command, o.err);
        CHECK(o.code >= 0);
        CHECK(o.code <= 6);
      }
    }
    CHECK(Shell(folder, "cat run.yaml | " + limit + "--config /dev/stdin --dry-run").code == 0);
    CHECK(Shell(folder, limit + "--config /dev/stdin --dry-run < run.yaml").code == 0);
    CHECK(Shell(folder, "bash -c '" + std::string("timeout 20 \"") + ADA_BINARY +
                            "\" --config <(sleep 0.2; cat run.yaml) --dry-run'")
              .code == 0);
  }
}

}  // namespace
}  // namespace ada::testing
