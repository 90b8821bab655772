// The JSON file of a checkpoint: every field with its type and range, and hashes of the state and
// of the tensors' file, by which a damaged pair is known.
#pragma once
#include <string>

#include "train/checkpoint/checkpoint.h"

namespace ada::train {

// The file's bytes. `tensors_hash` is that of the pair's other file.
std::string StateText(const CheckpointState& state, const std::string& tensors_hash);

// What ReadStateText gives; that the tensors' file has this hash is the caller's to check.
struct StoredState {
  CheckpointState state;
  std::string tensors_hash;
};
// Throws DataError where the file cannot be read, is damaged, is of another version, or holds a
// field that is not what it must be.
StoredState ReadStateText(const std::string& path);

// A file of a checkpoint that is not as it should be: DataError.
[[noreturn]] void Damaged(const std::string& path, const std::string& what);

}  // namespace ada::train
