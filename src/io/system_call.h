// System calls on files as this program uses them: calls interrupted by a signal are repeated, no
// call waits for the other end of a pipe, and errors stay in errno.
#pragma once
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ada {

// Repeats `call` while it fails with EINTR, and returns its result.
template <class Call>
auto Retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// As open(2), closed on exec.
int OpenFile(const std::string& path, int flags);
// Flushes the file to the disk; true also on file systems that cannot do so.
bool SyncFile(int fd);
// Like close(2). On Linux the descriptor is closed even if EINTR is returned, so that is success.
int CloseFile(int fd);
int RenameFile(const std::string& from, const std::string& to);

// kRefused: only regular files are opened, because only these have a known end. kOffered: also what
// the shell passes (/dev/stdin, `<(command)`) and FIFOs; a FIFO without a writer counts as an empty
// file.
enum class Pipes { kRefused, kOffered };

// Opens `path` for reading, without ever waiting; -1: `problem` has the reason in words, and errno
// its number (0: not a regular file).
int OpenToRead(const std::string& path, Pipes pipes, std::string* problem);

// Appends to `bytes` until it has `most` of them or the file ends; false: errno says why not.
bool ReadUpTo(int fd, std::size_t most, std::string* bytes);

// Fills `to` with the file's bytes from `offset` on; returns how many were read: fewer than `bytes`
// at the end of the file (errno is 0) or on an error (errno is set).
std::size_t ReadAt(int fd, std::uint64_t offset, void* to, std::size_t bytes);

// Does the same as a text of at most `size` bytes; nullopt: an error.
std::optional<std::string> TextAt(int fd, std::int64_t offset, std::size_t size);
// 0 where the system does not say, and of what is no regular file.
std::int64_t SizeOfFile(int fd);

// Returns how many of the bytes were written: all of them, or fewer on an error (errno).
std::size_t WriteAll(int fd, std::string_view bytes);

// Whether `path` still refers to the open regular file `fd`: false if it was deleted, moved
// or replaced since, or its folder was. True for a device or pipe, and if the system cannot
// tell.
bool IsStillNamed(int fd, const std::string& path);

}  // namespace ada
