// Failures to read a file that say nothing of the file: the machine has no descriptors or no memory
// left, or the disk or server that holds it does not give it. They end a program with exit code 4
// and never count as a damaged file.
#pragma once
#include <new>
#include <string>

#include "core/error.h"

namespace ada {

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
