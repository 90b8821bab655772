// RunFolder: every state of a folder under each of the three choices; what --overwrite deletes.
#include "telemetry/run_folder.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "error.h"
#include "temp_folder.h"

using ada::telemetry::FolderState;
using ada::telemetry::HasCheckpoints;
using ada::telemetry::InspectRunFolder;
using ada::telemetry::OnExisting;
using ada::telemetry::RunFolder;
using ada::testing::TempFolder;

namespace {

const char* kSteps =
    "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n1,1,2,0,0,1,0,0,1\n";

// Files of a folder "run" in `folder`, by the name of a situation.
void Make(const TempFolder& folder, const std::string& situation) {
  const auto has = [&](const char* word) { return situation.find(word) != std::string::npos; };
  if (situation == "missing") return;
  std::filesystem::create_directories(folder / "run");
  if (has("lock")) folder.Write("run/.lock", "");
  if (has("steps")) folder.Write("run/steps.csv", kSteps);
  if (has("config")) folder.Write("run/config.yaml", "name: x\n");
  if (has("finished")) folder.Write("run/summary.json", R"({"status": "finished"})");
  if (has("stopped")) folder.Write("run/summary.json", R"({"status": "stopped"})");
  if (has("broken")) folder.Write("run/summary.json", R"({"status": "fin)");
  if (has("checkpoint")) {
    folder.Write("run/checkpoints/step-00000001.safetensors", "x");
    folder.Write("run/checkpoints/step-00000001.json", "x");
  }
  if (has("notes")) folder.Write("run/notes.txt", "mine");
  if (has("theirs")) folder.Write("run/steps.csv", "time,steps\n1,2\n");
}

std::string Outcome(const TempFolder& folder, OnExisting on_existing) {
  try {
    const RunFolder run(folder / "run", on_existing);
    return "";
  } catch (const ada::ConfigError& error) {
    return error.what();
  }
}

std::set<std::string> Files(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    names.insert(std::filesystem::relative(entry.path(), folder).string());
  }
  return names;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("every situation under every choice") {
    const std::string ok;
    const std::string finished =
        "holds a finished run; --resume extends it where train.epochs or train.max_steps grew, "
        "--overwrite deletes that run first, --output FOLDER takes another folder";
    const std::string unfinished =
        "holds an unfinished run with checkpoints; --resume goes on from the newest, --overwrite "
        "deletes that run first, --output FOLDER takes another folder";
    const std::string elsewhere =
        "; choose another folder with --output, or empty this one by hand";
    const std::string foreign =
        "holds files that no run of this program wrote, with names that a run uses" + elsewhere;
    const std::string others =
        "holds files but no run of this program, and --overwrite deletes runs only" + elsewhere;
    struct Case {
      const char* situation;
      FolderState state;
      std::string refuse, resume, overwrite;  // what each choice says
    };
    const std::vector<Case> cases = {
        {"missing", FolderState::kEmpty, ok, ok, ok},
        {"empty", FolderState::kEmpty, ok, ok, ok},
        {"lock", FolderState::kEmpty, ok, ok, ok},
        {"steps config finished checkpoint", FolderState::kFinished, finished, ok, ok},
        {"steps finished", FolderState::kFinished, finished, ok, ok},
        {"steps config checkpoint lock", FolderState::kUnfinished, unfinished, ok, ok},
        {"steps config stopped checkpoint", FolderState::kUnfinished, unfinished, ok, ok},
        {"steps config broken checkpoint", FolderState::kUnfinished, unfinished, ok, ok},
        {"steps config", FolderState::kUnfinished, ok, ok, ok},
        {"steps config notes", FolderState::kUnfinished, ok, ok, ok},
        {"lock config", FolderState::kUnfinished, ok, ok, ok},
        {"notes", FolderState::kEmpty, ok, ok, others},
        {"notes lock", FolderState::kEmpty, ok, ok, others},
        {"config", FolderState::kForeign, foreign, foreign, foreign},
        {"lock config notes", FolderState::kForeign, foreign, foreign, foreign},
        {"checkpoint notes", FolderState::kForeign, foreign, foreign, foreign},
        {"theirs", FolderState::kForeign, foreign, foreign, foreign},
        {"theirs lock config finished", FolderState::kForeign, foreign, foreign, foreign},
    };
    for (const Case& c : cases) {
      for (const auto& [choice, says] :
           {std::pair(OnExisting::kRefuse, &c.refuse), std::pair(OnExisting::kResume, &c.resume),
            std::pair(OnExisting::kOverwrite, &c.overwrite)}) {
        CAPTURE(c.situation);
        CAPTURE(static_cast<int>(choice));
        const TempFolder folder;
        Make(folder, c.situation);
        CHECK(InspectRunFolder(folder / "run") == c.state);
        const std::set<std::string> before = Files(folder.path());
        const std::string outcome = Outcome(folder, choice);
        if (says->empty()) {
          CHECK(outcome == "");
          CHECK(folder.Has("run/.lock"));
        } else {
          CHECK(outcome == "output folder " + folder / "run" + ": " + *says);
          CHECK(Files(folder.path()) == before);
        }
      }
    }
  }

  TEST_CASE("--overwrite deletes a run's own files and nothing else") {
    const TempFolder folder;
    Make(folder, "steps config finished checkpoint notes");
    for (const char* name : {"run/scales.csv",
                             "run/underflow.csv",
                             "run/events.csv",
                             "run/evaluation.csv",
                             "run/timing.csv",
                             "run/histograms.csv",
                             "run/what_if.csv",
                             "run/probes.csv",
                             "run/log.txt",
                             "run/dump/step-00000100.safetensors",
                             "run/dump/skip-00000007.safetensors",
                             "run/dump/alert-00000009.safetensors",
                             "run/tensorboard/events.out.tfevents.1700000000.host.1.0",
                             "run/checkpoints/best.safetensors",
                             "run/checkpoints/best.json",
                             "run/checkpoints/mine.txt",
                             "run/checkpoints/mine.safetensors",
                             "run/checkpoints/notes.json",
                             "run/checkpoints/step-1-old.json",
                             "run/checkpoints/step-.json",
                             "run/dump/step-1.json",
                             "run/dump/best.safetensors",
                             "run/dump/skip-mine.safetensors",
                             "run/tensorboard/notes.json",
                             "run/analysis.csv",
                             "run/plots/a.png",
                             "run/.ada-1-2.tmp"}) {
      folder.Write(name, "x");
    }
    {
      const RunFolder run(folder / "run", OnExisting::kOverwrite);
      CHECK(run.state() == FolderState::kEmpty);
      CHECK(Files(folder / "run") ==
            std::set<std::string>{".lock", "analysis.csv", "checkpoints", "checkpoints/mine.txt",
                                  "checkpoints/mine.safetensors", "checkpoints/notes.json",
                                  "checkpoints/step-1-old.json", "checkpoints/step-.json", "dump",
                                  "dump/step-1.json", "dump/best.safetensors",
                                  "dump/skip-mine.safetensors", "notes.txt", "plots", "plots/a.png",
                                  "tensorboard", "tensorboard/notes.json"});
    }
    CHECK(folder.Read("run/notes.txt") == "mine");
  }

  TEST_CASE("each file and folder of a run is known as such; a folder's other files stay") {
    for (const char* name : {"scales.csv", "underflow.csv", "events.csv", "evaluation.csv",
                             "timing.csv", "histograms.csv", "what_if.csv", "probes.csv", "log.txt",
                             "dump/mine.txt", "tensorboard/mine.txt"}) {
      CAPTURE(name);
      const TempFolder folder;
      folder.Write(std::string("run/") + name, "x");
      CHECK(InspectRunFolder(folder / "run") == FolderState::kForeign);
      folder.Write("run/steps.csv", kSteps);
      CHECK(InspectRunFolder(folder / "run") == FolderState::kUnfinished);
      { const RunFolder run(folder / "run", OnExisting::kOverwrite); }
      const bool mine = std::string(name).ends_with("mine.txt");
      CHECK(folder.Has(std::string("run/") + name) == mine);
    }
  }

  TEST_CASE("checkpoints on another disk behind a link: emptied, the link stays") {
    const TempFolder folder, disk;
    Make(folder, "steps config");
    disk.Write("step-00000001.safetensors", "x");
    std::filesystem::create_directory_symlink(disk.path(), folder / "run/checkpoints");
    CHECK(HasCheckpoints(folder / "run"));
    { const RunFolder run(folder / "run", OnExisting::kOverwrite); }
    CHECK(std::filesystem::is_symlink(folder / "run/checkpoints"));
    CHECK_FALSE(HasCheckpoints(folder / "run"));
  }

  TEST_CASE("a folder that is a link into another run is refused, and nothing there is touched") {
    const TempFolder folder, other;
    Make(folder, "steps config");
    Make(other, "steps config");
    for (const char* name : {"checkpoints", "dump", "tensorboard"}) {
      CAPTURE(name);
      other.Write(std::string("run/") + name + "/step-00000001.safetensors", "x");
      std::filesystem::create_directory_symlink(other / "run" + "/" + name,
                                                folder / "run" + "/" + name);
      for (const OnExisting on_existing : {OnExisting::kOverwrite, OnExisting::kResume}) {
        std::string message;
        try {
          const RunFolder run(folder / "run", on_existing);
        } catch (const ada::ConfigError& error) {
          message = error.what();
        }
        CHECK(message.find(std::string("its ") + name + " is a link into the run in ") !=
              std::string::npos);
      }
      CHECK(other.Has(std::string("run/") + name + "/step-00000001.safetensors"));
      CHECK(folder.Has("run/steps.csv"));
      std::filesystem::remove(folder / "run" + "/" + name);
    }
    // A run that is reached through a link is still itself.
    std::filesystem::create_directory_symlink(folder / "run", folder / "latest");
    { const RunFolder run(folder / "latest", OnExisting::kResume); }
  }

  TEST_CASE("a running run is never touched, and free again when its process dies") {
    const TempFolder folder;
    Make(folder, "steps config finished checkpoint");
    int ready[2];
    REQUIRE(pipe(ready) == 0);
    const pid_t child = fork();
    if (child == 0) {
      const RunFolder run(folder / "run", OnExisting::kResume);
      if (write(ready[1], "x", 1) != 1) _exit(1);
      pause();
    }
    char go = 0;
    REQUIRE(read(ready[0], &go, 1) == 1);
    const std::set<std::string> before = Files(folder.path());
    for (const OnExisting choice :
         {OnExisting::kRefuse, OnExisting::kResume, OnExisting::kOverwrite}) {
      CHECK(Outcome(folder, choice) ==
            "output folder " + folder / "run" +
                ": another process is running there; wait for it, or choose another --output");
    }
    CHECK(Files(folder.path()) == before);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    close(ready[0]);
    close(ready[1]);
    CHECK(Outcome(folder, OnExisting::kResume) == "");
    CHECK(Outcome(folder, OnExisting::kOverwrite) == "");
  }

  TEST_CASE("the lock lives as long as the object") {
    const TempFolder folder;
    auto run = std::make_unique<RunFolder>(folder / "a/b/run", OnExisting::kRefuse);
    CHECK(run->path() == folder / "a/b/run");
    CHECK_THROWS_AS(RunFolder(folder / "a/b/run", OnExisting::kResume), ada::ConfigError);
    run.reset();
    CHECK_NOTHROW(RunFolder(folder / "a/b/run", OnExisting::kResume));
  }

  TEST_CASE("an extended run is unfinished until it writes a new summary") {
    const TempFolder folder;
    Make(folder, "steps config finished");
    const RunFolder run(folder / "run", OnExisting::kResume);
    CHECK(run.state() == FolderState::kFinished);
    run.MarkUnfinished();
    CHECK(InspectRunFolder(folder / "run") == FolderState::kUnfinished);
    run.MarkUnfinished();
  }

  TEST_CASE("what a run keeps for itself, whether it is there or not") {
    const TempFolder folder;
    Make(folder, "steps config checkpoint notes");
    const std::string run = std::filesystem::canonical(folder / "run").string();
    for (const char* path : {"steps.csv", "classes.csv", ".lock", "config.yaml", "checkpoints",
                             "checkpoints/a.csv", "dump/deep/a", "./checkpoints/../steps.csv"})
      CHECK_MESSAGE(ada::telemetry::RunThatKeeps(folder / ("run/" + std::string(path))) == run,
                    path);
    for (const char* path : {"", "notes.txt", "mine.csv", "seen/steps.csv", "seen"})
      CHECK_MESSAGE(ada::telemetry::RunThatKeeps(folder / ("run/" + std::string(path))).empty(),
                    path);
    CHECK(ada::telemetry::RunThatKeeps(folder / "steps.csv").empty());
    CHECK_THROWS_AS(RunFolder(folder / "run/checkpoints/new", OnExisting::kRefuse),
                    ada::ConfigError);
    CHECK_FALSE(folder.Has("run/checkpoints/new"));
  }

  TEST_CASE("a file in the folder's place; a folder that cannot be made") {
    const TempFolder folder;
    folder.Write("run", "a file");
    CHECK(Outcome(folder, OnExisting::kOverwrite) ==
          "output folder " + folder / "run" + ": is a file; --output FOLDER takes another folder");
    CHECK_THROWS_AS(RunFolder(folder / "run/below", OnExisting::kRefuse), ada::OutputError);
    CHECK_THROWS_AS(RunFolder("/proc/ada-train-run", OnExisting::kRefuse), ada::OutputError);
  }
}
