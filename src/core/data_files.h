// How the readers of data sets ask the file system. Where the machine fails and not the file
// (core/machine_error.h) all throw DeviceError, so that no file is taken for a damaged or missing
// one; DataError, with the same words, where it is the file.
#pragma once
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

namespace ada {

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

}  // namespace ada
