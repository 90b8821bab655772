// Decides what may be done with the folder a run writes to, and holds it for the run's lifetime.
// Nothing that this program did not write is ever deleted or written over.
#pragma once
#include <optional>
#include <string>

#include "core/file.h"

namespace ada::telemetry {

enum class FolderState {
  kEmpty,       // missing, empty, or with files of others only, none of which has a name of ours
  kUnfinished,  // a run that was interrupted, killed or stopped
  kFinished,    // summary.json says so
  kForeign,     // no run of ours, but files or folders with names that a run would use
};

// Neither --resume nor --overwrite; one of them.
enum class OnExisting { kRefuse, kResume, kOverwrite };

// What `folder` holds; reads only. Whether somebody writes there now is not looked at. DataError
// where the folder or its summary is there and cannot be read.
FolderState InspectRunFolder(const std::string& folder);
// Whether any file of a checkpoint is there, whole or not. DataError.
bool HasCheckpoints(const std::string& folder);

// The folder of the run that keeps `path` for itself: one of its files by name, there or not, or
// what lies in its checkpoints, dumps and event files. "": no run does.
std::string RunThatKeeps(const std::string& path);

// Whether a file of dump/ is called as the dump of a step is: step-<digits>.safetensors.
bool IsDump(const std::string& name);
// Deletes the dumped steps of an earlier run in a run's folder, dump/step-<digits>.safetensors, and
// dump/ where nothing else is in it; other files stay. OutputError.
void RemoveDumps(const std::string& run_folder);

// A folder that is this process's alone as long as the object lives.
// Made by train/ before anything of the run is written, and kept until the run is over.
class RunFolder {
 public:
  // Creates the folder where it is missing and locks it; under kOverwrite deletes the old run's own
  // files, else what a killed process left half written. Throws ConfigError with advice where the
  // folder is refused, always before a change to it:
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
