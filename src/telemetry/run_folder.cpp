// Tells the files of a run by their names, locks its folder, and deletes only what a run has
// written.
#include "telemetry/run_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "error.h"
#include "io/file.h"
#include "io/file_lock.h"
#include "io/json_file.h"
#include "io/system_call.h"
#include "io/text.h"
#include "telemetry/tensorboard.h"

namespace ada::telemetry {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxSummaryBytes = 64 << 20;
constexpr const char* kLock = ".lock";
// All that a run writes in its folder. The first one marks a run, and is deleted last.
const std::vector<std::string> kFiles = {"steps.csv",
                                         "scales.csv",
                                         "underflow.csv",
                                         "events.csv",
                                         "evaluation.csv",
                                         "timing.csv",
                                         "classes.csv",
                                         "confusion.csv",
                                         "losses.csv",
                                         "histograms.csv",
                                         "what_if.csv",
                                         "probes.csv",
                                         "what_if_blocks.csv",
                                         "blocks.csv",
                                         "config.yaml",
                                         "accumulators.csv",
                                         "what_if_accumulators.csv",
                                         "summary.json",
                                         "log.txt",
                                         "blame.json"};

// Whether `steps.csv` is one of ours, of this version or another.
// The columns at the front of the header are the same in all versions.
bool HasOurSteps(const std::string& folder) {
  constexpr std::string_view kBegin = "step,epoch,loss,";
  std::string ignored, text;
  const int fd = OpenToRead(folder + "/steps.csv", Pipes::kRefused, &ignored);
  if (fd < 0) return false;
  ReadUpTo(fd, kBegin.size(), &text);
  CloseFile(fd);
  return text == kBegin;
}

// A summary that is there and cannot be read is a DataError; one that is damaged says nothing.
bool IsFinished(const std::string& folder) {
  const std::string path = folder + "/summary.json";
  std::error_code error;
  if (!fs::exists(path, error) && !error) return false;
  const std::string text = ReadFile(path, kMaxSummaryBytes);
  try {
    return JsonFields(ParseJson(path, text), path).Text("status") == "finished";
  } catch (const DataError&) {
    return false;
  }
}

void Remove(const fs::path& path) {
  std::error_code error;
  fs::remove(path, error);
  if (error) throw OutputError(path.string() + ": cannot be deleted: " + error.message());
}

// Whether a file is called as the tensors or the state of a step are: `begin`, the step's number,
// then one of `endings`.
bool IsOfStep(std::string_view name, std::initializer_list<std::string_view> endings,
              std::string_view begin = "step-") {
  if (!name.starts_with(begin)) return false;
  name.remove_prefix(begin.size());
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  return digits > 0 &&
         std::find(endings.begin(), endings.end(), name.substr(digits)) != endings.end();
}

// Whether a file of checkpoints/ is called as one of a checkpoint is: that of a step, or the best.
bool IsCheckpoint(const std::string& name) {
  return IsOfStep(name, {".safetensors", ".json"}) || name == "best.safetensors" ||
         name == "best.json";
}

// Dumps of steps that were due, and of an event (log.dump_on).
bool IsAnyDump(const std::string& name) {
  return IsDump(name) || IsOfStep(name, {".safetensors"}, "skip-") ||
         IsOfStep(name, {".safetensors"}, "alert-");
}

// A folder of a run, and which of its files the run has written.
struct OwnFolder {
  std::string name;
  std::function<bool(const std::string& name)> ours;
};
const std::vector<OwnFolder> kFolders = {
    {"checkpoints", IsCheckpoint}, {"dump", IsAnyDump}, {kEventFolder, IsEventFile}};

bool IsFolderOfRun(const std::string& name) {
  return std::any_of(kFolders.begin(), kFolders.end(),
                     [&](const OwnFolder& folder) { return folder.name == name; });
}

// Deletes the files in a sub-folder that are `ours`, and the sub-folder where nothing else is left.
void RemoveFolder(const std::string& folder,
                  const std::function<bool(const std::string& name)>& ours) {
  RemoveStaleTemporaries(folder);
  for (const std::string& name : ListFolder(folder)) {
    if (ours(name)) Remove(fs::path(folder) / name);
  }
  std::error_code ignored;  // a link to another disk stays, as does a folder with files of others
  if (!fs::is_symlink(folder, ignored) && ListFolder(folder).empty()) Remove(folder);
}

// The lock stays: it is ours already.
void RemoveRun(const std::string& folder) {
  // The files that mark a run go last, so that an interrupted deletion is still known as a run.
  for (const OwnFolder& own : kFolders) {
    if (IsFolder(folder + "/" + own.name)) RemoveFolder(folder + "/" + own.name, own.ours);
  }
  RemoveStaleTemporaries(folder);
  std::for_each(kFiles.rbegin(), kFiles.rend(),
                [&](const std::string& name) { Remove(folder + "/" + name); });
}

[[noreturn]] void Refuse(const std::string& folder, const std::string& why,
                         const std::string& advice) {
  throw ConfigError("output folder " + folder + ": " + why + "; " + advice);
}

// A folder of the run may be a link to another disk, but not into another run, whose files would be
// deleted and written over.
void RefuseLinksIntoRuns(const std::string& folder) {
  std::error_code error;
  for (const OwnFolder& own : kFolders) {
    const fs::path inner = fs::path(folder) / own.name;
    if (!fs::is_symlink(inner, error)) continue;
    const std::string keeper = RunThatKeeps(fs::weakly_canonical(inner, error).string());
    if (!keeper.empty() && !fs::equivalent(keeper, folder, error))
      Refuse(
          folder,
          "its " + own.name + " is a link into the run in " + keeper + ", which alone writes there",
          "put a folder in its place, a copy of what it leads to");
  }
}

// Checks from what is always refused to what an option allows; the message names the option that
// helps.
void RefuseUnlessAllowed(const std::string& folder, FolderState state, OnExisting on_existing) {
  RefuseLinksIntoRuns(folder);
  const std::string keeper = RunThatKeeps(folder);
  if (!keeper.empty())
    Refuse(folder, "belongs to the run in " + keeper + ", which alone writes there",
           "--output FOLDER takes another folder");
  const std::string choices =
      "--overwrite deletes that run first, --output FOLDER takes another folder";
  std::error_code ignored;
  if (fs::exists(folder, ignored) && !fs::is_directory(folder, ignored)) {
    Refuse(folder, "is a file", "--output FOLDER takes another folder");
  }
  const std::string elsewhere = "choose another folder with --output, or empty this one by hand";
  if (state == FolderState::kForeign) {
    Refuse(folder, "holds files that no run of this program wrote, with names that a run uses",
           elsewhere);
  }
  if (on_existing == OnExisting::kOverwrite && state == FolderState::kEmpty) {
    const std::vector<std::string> names = ListFolder(folder);
    const bool others = std::any_of(names.begin(), names.end(), [](const std::string& name) {
      return name != kLock && !IsTemporaryName(name);
    });
    if (others) {
      Refuse(folder, "holds files but no run of this program, and --overwrite deletes runs only",
             elsewhere);
    }
  }
  if (on_existing != OnExisting::kRefuse) return;
  if (state == FolderState::kFinished) {
    Refuse(folder, "holds a finished run",
           "--resume extends it where train.epochs or train.max_steps grew, " + choices);
  }
  if (state == FolderState::kUnfinished && HasCheckpoints(folder)) {
    Refuse(folder, "holds an unfinished run with checkpoints",
           "--resume goes on from the newest, " + choices);
  }
}

// Where this process may neither look nor write nothing can be put, whatever is there. A file in
// the folder's place is refused as such.
void RequireAccess(const std::string& folder) {
  std::error_code error;
  if (fs::is_regular_file(folder, error)) return;
  const int missing = faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK | X_OK, AT_EACCESS);
  if (missing == 0 || errno != EACCES) return;
  throw OutputError("output folder " + folder +
                    ": cannot be written: " + std::generic_category().message(EACCES));
}

// A file lock of the system: it ends with the process, for whatever reason.
FileLock Lock(const std::string& folder) {
  std::optional<FileLock> lock = FileLock::TryLock(folder);
  if (!lock) {
    Refuse(folder, "another process is running there", "wait for it, or choose another --output");
  }
  return std::move(*lock);
}

}  // namespace

bool IsDump(const std::string& name) { return IsOfStep(name, {".safetensors"}); }

bool HasCheckpoints(const std::string& folder) {
  const std::string checkpoints = folder + "/checkpoints";
  if (!IsFolder(checkpoints)) return false;
  const std::vector<std::string> names = ListFolder(checkpoints);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return IsCheckpoint(name); });
}

// Goes upward from the path; at each folder with a name that runs use, checks whether its parent is
// a run's folder.
std::string RunThatKeeps(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::weakly_canonical(fs::absolute(path, error).parent_path(), error) /
                         fs::path(path).filename();
  // Only the path itself can be one of the run's files; a folder of its may be anywhere above.
  for (fs::path at = whole; at.has_relative_path(); at = at.parent_path()) {
    const std::string name = at.filename().string();
    const bool file = at == whole && (name == kLock || Contains(kFiles, name));
    if (!file && !IsFolderOfRun(name)) continue;
    const std::string folder = at.parent_path().string();
    const bool started = fs::exists(folder + "/config.yaml", error) &&
                         (fs::exists(folder + "/" + kLock, error) || HasCheckpoints(folder));
    if (HasOurSteps(folder) || started) return folder;
  }
  return "";
}

void RemoveDumps(const std::string& run_folder) {
  const std::string folder = run_folder + "/dump";
  if (IsFolder(folder)) RemoveFolder(folder, IsAnyDump);
}

FolderState InspectRunFolder(const std::string& folder) {
  if (!IsFolder(folder)) return FolderState::kEmpty;
  bool ours = false, others = false, locked = false;
  for (const std::string& name : ListFolder(folder)) {
    if (name == kLock) {
      locked = true;
    } else if (Contains(kFiles, name) || IsFolderOfRun(name)) {
      ours = true;
    } else if (!IsTemporaryName(name)) {
      others = true;
    }
  }
  if (!ours) return FolderState::kEmpty;
  // A run that was killed before its first log has the lock and nothing but files of ours.
  std::error_code error;
  const auto size = fs::file_size(folder + "/steps.csv", error);
  const bool none = error == std::errc::no_such_file_or_directory || (!error && size == 0);
  const bool started = locked && !others && none;
  if (!HasOurSteps(folder) && !started) return FolderState::kForeign;
  return IsFinished(folder) ? FolderState::kFinished : FolderState::kUnfinished;
}

// An existing lock is taken before the folder is inspected; in a folder without one nothing is
// created until it is known to be allowed, and then it is inspected again under the lock.
RunFolder::RunFolder(const std::string& path, OnExisting on_existing) : path_(path) {
  RequireAccess(path);
  std::error_code ignored;
  if (fs::exists(path + "/" + kLock, ignored)) lock_ = Lock(path);
  state_ = InspectRunFolder(path);
  RefuseUnlessAllowed(path, state_, on_existing);
  if (!lock_) {
    CreateFolders(path);
    lock_ = Lock(path);
    state_ = InspectRunFolder(path);  // a run may have come and gone in between
    RefuseUnlessAllowed(path, state_, on_existing);
  }
  if (on_existing == OnExisting::kOverwrite) {
    RemoveRun(path);
    state_ = FolderState::kEmpty;
  }
  RemoveStaleTemporaries(path);
  for (const OwnFolder& own : kFolders) RemoveStaleTemporaries(path + "/" + own.name);
}

void RunFolder::MarkUnfinished() const { Remove(path_ + "/summary.json"); }

}  // namespace ada::telemetry
