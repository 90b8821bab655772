// How files are read that a user gave: which failures are the file's and which the machine's, and
// how the readers of data sets ask the file system.
#pragma once
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"

namespace ada {

// How the readers of data sets ask the file system. Where the machine fails and not the file all
// throw DeviceError, so that no file is taken for a damaged or missing one; DataError, with the
// same words, where it is the file.

// Returns a descriptor to be read from, which is the caller's.
int OpenDataFile(const std::string& path);
// ReadDataFile returns the whole of a regular file, DataError where it has more than `max_bytes`;
// ListDataFolder returns the names in a folder in no order, none of a folder that is missing.
std::string ReadDataFile(const std::string& path, std::uint64_t max_bytes);
std::vector<std::string> ListDataFolder(const std::string& folder);

// Whether a folder is there. DataError where one may not look.
bool IsDataFolder(const std::string& path);
// Whether anything is there that one may look at.
bool IsThere(const std::string& path);
// Throws DeviceError where std::filesystem's `error` about `path` is the machine's.
void RefuseMachineError(const std::string& path, const std::error_code& error);

// Failures to read a file that say nothing of the file: the machine has no descriptors or no memory
// left, or the disk or server that holds it does not give it. They end a program with exit code 4
// and never count as a damaged file.

// Whether errno's `error` is such a failure. 0 is none, nor is what says that a path leads nowhere,
// to something that is no file, or to a file that may not be read: all else is.
bool IsOfMachine(int error);

// DeviceError of `message`, with what helps against `error` at its end.
DeviceError MachineFailed(const std::string& message, int error);

// Throws MachineFailed where the machine failed, else E.
template <class E>
[[noreturn]] void ThrowUnread(const std::string& message, int error) {
  if (IsOfMachine(error)) throw MachineFailed(message, error);
  throw E(message);
}

// "PATH: there is no memory to <purpose>", and what helps.
DeviceError NoMemory(const std::string& path, const std::string& purpose);

// Returns what `work` returns; memory that it does not get is NoMemory's.
template <class Work>
auto WithMemory(const std::string& path, const char* purpose, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw NoMemory(path, purpose);
  }
}

}  // namespace ada
