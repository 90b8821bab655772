// Decides whether a run may use a folder, and locks the folder for the run's lifetime. Nothing that
// this program did not write is ever deleted or overwritten.
#pragma once
#include <optional>
#include <string>

#include "io/file.h"
#include "io/file_lock.h"

namespace ada::telemetry {

enum class FolderState {
  kEmpty,       // missing, empty, or with other files only, none of which has a name of ours
  kUnfinished,  // a run that was interrupted, killed or stopped
  kFinished,    // summary.json says so
  kForeign,     // not a run of ours, but with files or folders whose names a run would use
};

// Neither --resume nor --overwrite; one of them.
enum class OnExisting { kRefuse, kResume, kOverwrite };

// The state of `folder`; only reads. Does not tell whether some process writes there now. DataError
// if the folder or its summary exists but cannot be read.
FolderState InspectRunFolder(const std::string& folder);
// Whether any file of a checkpoint exists, complete or not. DataError.
bool HasCheckpoints(const std::string& folder);

// The folder of the run to which `path` belongs: as one of its files by name, existing or not, or
// as something in its checkpoints, dumps and event files. "": no run.
std::string RunThatKeeps(const std::string& path);

// Whether a file of dump/ is named like the dump of a step: step-<digits>.safetensors.
bool IsDump(const std::string& name);
// Deletes the dumped steps of an earlier run in a run's folder, dump/step-<digits>.safetensors, and
// dump/ where nothing else is in it; other files stay. OutputError.
void RemoveDumps(const std::string& run_folder);

// A folder that only this process may write to as long as the object lives. Made by train/ before
// anything of the run is written, and kept until the run is over.
class RunFolder {
 public:
  // Creates the folder if it is missing and locks it; under kOverwrite deletes the old run's own
  // files, otherwise only temporary files of a killed process. Throws ConfigError with advice,
  // before any change, if the folder is refused:
  //   a running run: always
  //   finished: without --resume and --overwrite
  //   unfinished: the same where it has checkpoints; without any it is started afresh
  //   files of others: under --overwrite, or where names collide
  // OutputError where it cannot be created, written or deleted from, DataError where it cannot be
  // read.
  RunFolder(const std::string& path, OnExisting on_existing);

  const std::string& path() const { return path_; }
  FolderState state() const { return state_; }  // as found; kEmpty after --overwrite
  // Deletes summary.json: a finished run that is extended is unfinished until it writes a new one.
  void MarkUnfinished() const;

 private:
  std::string path_;
  FolderState state_ = FolderState::kEmpty;
  std::optional<FileLock> lock_;
};

}  // namespace ada::telemetry
