// Failures to read a file that say nothing about the file: the machine has no descriptors or memory
// left, or the disk or server that holds it does not respond. They end the program with exit code
// 4, and the file is never called damaged.
#pragma once
#include <new>
#include <string>
#include <system_error>

#include "error.h"

namespace ada {

// Whether errno's value `error` is such a failure. Not 0, nor errors that say that a path does not
// exist, is not a file, or may not be read; all others are.
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
// What a message says of a path that stat refuses: "PATH: cannot be looked at: Permission denied".
std::string CannotBeLookedAt(const std::string& path, int error);
// Throws DeviceError if std::filesystem's `error` about `path` is the machine's fault.
void RefuseMachineError(const std::string& path, const std::error_code& error);

}  // namespace ada
