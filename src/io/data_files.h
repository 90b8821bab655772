// File access of the readers of data sets. If the machine fails and not the file, all of them throw
// DeviceError, so that no file is mistaken for damaged or missing; if it is the file, DataError
// with the same text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "io/file.h"

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
}  // namespace ada
