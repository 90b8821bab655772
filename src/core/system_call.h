// System calls on files as this program makes them: a call that a signal cut short is made again,
// no call waits for somebody at the other end of a pipe, and errors stay in errno.
#pragma once
#include <sys/types.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ada {

// What `call` returns once it is not EINTR.
template <class Call>
auto Retried(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// As open(2), closed on exec.
int OpenFile(const std::string& path, int flags);
// Writes to the disk what the system holds of the file; true as well on file systems that cannot.
bool SyncFile(int fd);
// As close(2). Linux has let go of the descriptor when it says EINTR: that counts as done.
int CloseFile(int fd);
int RenameFile(const std::string& from, const std::string& to);

// kRefused: only a regular file is opened, since nothing else has an end that can be known.
// kOffered: also what the shell hands over (/dev/stdin, `<(command)`) and FIFOs; one that nobody
// has open for writing is an empty file.
enum class Pipes { kRefused, kOffered };

// Opens `path` to be read, never waiting; -1: `problem` holds the reason in words, and errno its
// number (0: it is no regular file).
int OpenToRead(const std::string& path, Pipes pipes, std::string* problem);

// Appends to `bytes` until it has `most` of them or the file ends; false: errno says why not.
bool ReadUpTo(int fd, std::size_t most, std::string* bytes);

// Fills `to` with the file's bytes from `offset` on; returns how many there were: fewer than
// `bytes` at the file's end (errno is 0 then) or on an error (errno says which).
std::size_t ReadAt(int fd, std::uint64_t offset, void* to, std::size_t bytes);

// Does the same as a text of at most `size` bytes; nullopt: an error.
std::optional<std::string> TextAt(int fd, std::int64_t offset, std::size_t size);
// 0 where the system does not say, and of what is no regular file.
std::int64_t SizeOfFile(int fd);

// Returns how many of the bytes were written: all of them, or fewer on an error (errno).
std::size_t WriteAll(int fd, std::string_view bytes);

// Whether `path` still leads to the open regular file `fd`: false where it was deleted, moved or
// replaced meanwhile, or its folder was. True of a device or pipe, and where the system cannot
// tell.
bool IsStillNamed(int fd, const std::string& path);

}  // namespace ada
