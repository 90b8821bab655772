// How files that a user gave are read: which failures are the fault of the file and which of the
// machine, and how the readers of data sets access the file system. If the machine fails and not
// the file, all functions throw DeviceError, so that no file is mistaken for damaged or missing; if
// it is the file, DataError with the same text.
#pragma once
#include <cstdint>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "error.h"

namespace ada {

// Opens a file for reading and returns its descriptor, which the caller must close.
int OpenDataFile(const std::string& path);
// ReadDataFile returns the whole of a regular file, DataError where it has more than `max_bytes`;
// ListDataFolder returns the names in a folder in no order, none of a folder that is missing.
std::string ReadDataFile(const std::string& path, std::uint64_t max_bytes);
std::vector<std::string> ListDataFolder(const std::string& folder);

// Whether a folder exists. DataError if permissions do not allow to tell.
bool IsDataFolder(const std::string& path);
// Whether anything exists there that permissions let this program see.
bool IsThere(const std::string& path);
// The size of a regular file in bytes; the largest number where there is none that permissions let
// this program see.
std::uint64_t BytesOfFile(const std::string& path);
// Throws DeviceError if std::filesystem's `error` about `path` is the machine's fault.
void RefuseMachineError(const std::string& path, const std::error_code& error);

// Whether errno's value `error` is a failure that says nothing about the file: the machine has no
// descriptors or memory left, or the disk or server that holds the file does not respond. Such a
// failure ends the program with exit code 4, and the file is never called damaged. 0 is none, nor
// are errors that say that a path does not exist, is not a file, or may not be read; all others
// are.
bool IsOfMachine(int error);

// DeviceError with `message`, followed by advice on what helps against `error`.
DeviceError MachineFailed(const std::string& message, int error);

// Throws MachineFailed where the machine failed, else E.
template <class E>
[[noreturn]] void ThrowUnread(const std::string& message, int error) {
  if (IsOfMachine(error)) throw MachineFailed(message, error);
  throw E(message);
}

// "PATH: there is no memory to <purpose>", and what helps.
DeviceError NoMemory(const std::string& path, const std::string& purpose);

// Returns the result of `work`; throws NoMemory if it runs out of memory.
template <class Work>
auto WithMemory(const std::string& path, const char* purpose, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw NoMemory(path, purpose);
  }
}

}  // namespace ada
