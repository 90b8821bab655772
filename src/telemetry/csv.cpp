// Opens CSV files anew or where a checkpoint left them, and writes whole rows in pieces that a kill
// does not tear.
#include "telemetry/csv.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <system_error>

#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "io/system_call.h"
#include "io/text.h"

namespace ada::telemetry {
namespace {

// Linux's smallest page size, in bytes (NextPiece).
constexpr std::int64_t kPage = 4096;

std::string ErrorReason(int error) { return std::generic_category().message(error); }

// Advice for a log that is not the one that its checkpoint recorded.
constexpr const char* kAdvice =
    "the file was changed after the run stopped; put the old one back, or start again with "
    "--overwrite";

// "65536" -> "65536.0"; a number with a point or an exponent, and words, as they are.
std::string Real(std::string text) {
  if (text.find_first_not_of("-0123456789") == std::string::npos) text += ".0";
  return text;
}

// `error` is errno; a full disk gets the advice how to go on once there is room.
[[noreturn]] void Fail(const std::string& path, const std::string& doing, int error) {
  const std::string advice = error == ENOSPC || error == EDQUOT || error == EFBIG
                                 ? "; make room, then go on with --resume from the last checkpoint"
                                 : "";
  throw OutputError(path + ": " + doing + ": " + ErrorReason(error) + advice);
}

// Checks whether the open file can be truncated to `keep` bytes; returns its resulting length.
std::int64_t LengthToKeep(const std::string& path, int fd, std::string_view header,
                          std::int64_t keep) {
  const std::string expected = std::string(header) + "\n";
  if (TextAt(fd, 0, expected.size()) != expected) {
    throw DataError(path + ": the first line is not '" + std::string(header) +
                    "', the columns of this version: the file belongs to another version or "
                    "program; start again with --overwrite or in another --output folder");
  }
  struct stat status = {};
  if (fstat(fd, &status) != 0) Fail(path, "cannot be read", errno);
  if (status.st_size < keep) {
    throw DataError(path + ": " + std::to_string(status.st_size) +
                    " bytes, but the checkpoint goes on from " + std::to_string(keep) +
                    " bytes of it: " + kAdvice);
  }
  const std::int64_t length = std::max(keep, static_cast<std::int64_t>(expected.size()));
  if (TextAt(fd, length - 1, 1) != "\n") {
    throw DataError(path + ": no row ends at byte " + std::to_string(length) +
                    ", where the checkpoint goes on: " + kAdvice);
  }
  return length;
}

// O_NONBLOCK: if this is a pipe, the run must not wait for its other end.
int OpenToKeep(const std::string& path, std::int64_t keep) {
  const int fd = OpenFile(path, O_RDWR | O_NONBLOCK);
  if (fd >= 0) return fd;
  if (errno != ENOENT) Fail(path, "cannot be opened", errno);
  throw DataError(path + ": missing, but the checkpoint goes on from " + std::to_string(keep) +
                  " bytes of it: " + kAdvice);
}

}  // namespace

std::string CsvField(std::string_view text) {
  const std::string field = ValidUtf8(text);
  if (field.find_first_of(",\"\r\n") == std::string::npos) return field;
  std::string quoted = "\"";
  for (const char c : field) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

double AsLogged(double value) {
  return std::isfinite(value) ? std::strtod(NineDigits(value).c_str(), nullptr) : value;
}

CsvRow& CsvRow::Field(std::string_view text) {
  if (fields_++ > 0) text_ += ',';
  text_ += text;
  return *this;
}

CsvRow& CsvRow::Scale(double value) {
  return Field(std::isnan(value) ? "" : Real(ShortestText(value)));
}

CsvRow& CsvRow::Number(double value) { return Field(Real(NineDigits(value))); }

// The destructor does not run where the constructor throws, so the descriptor is closed here.
CsvFile::CsvFile(std::string path, std::string_view header, std::int64_t keep)
    : path_(std::move(path)), columns_(std::count(header.begin(), header.end(), ',') + 1) {
  try {
    if (keep < 0) {
      Open(header);
    } else {
      Reopen(header, keep);
    }
  } catch (...) {
    if (fd_ >= 0) CloseFile(fd_);
    throw;
  }
}

CsvFile::~CsvFile() {
  try {
    Flush();
  } catch (...) {  // a destructor cannot report it; Flush and Sync were there to do so
  }
  CloseFile(fd_);
}

// The header is written at once, so that readers that follow the run find the columns before the
// first row.
void CsvFile::Open(std::string_view header) {
  MakeOwnFile(path_, 0);
  fd_ = OpenFile(path_, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK);
  if (fd_ < 0) Fail("cannot be created", errno);
  buffer_ = std::string(header) + "\n";
  row_ends_ = {buffer_.size()};
  Flush();
}

void CsvFile::Reopen(std::string_view header, std::int64_t keep) {
  CheckCsv(path_, header, keep);
  MakeOwnFile(path_, std::max(keep, static_cast<std::int64_t>(header.size() + 1)));
  fd_ = OpenToKeep(path_, keep);
  length_ = LengthToKeep(path_, fd_, header, keep);
  if (Retried([&] { return ftruncate(fd_, length_); }) != 0) {
    Fail("cannot be cut to its length at the checkpoint", errno);
  }
  if (lseek(fd_, 0, SEEK_END) < 0) Fail("cannot be appended to", errno);
}

void CheckCsv(const std::string& path, std::string_view header, std::int64_t keep) {
  const int fd = OpenToKeep(path, keep);
  try {
    LengthToKeep(path, fd, header, keep);
  } catch (...) {
    CloseFile(fd);
    throw;
  }
  CloseFile(fd);
}

void CsvFile::Add(const CsvRow& row) {
  ADA_CHECK(row.size() == columns_);
  buffer_ += row.text();
  buffer_ += '\n';
  row_ends_.push_back(buffer_.size());
}

// Rows are written in pieces that end within one page of the file, and a row that crosses a page
// border is written separately. Linux checks for a fatal signal at page borders during a write:
// SIGKILL can tear only such a row, in the moment between its two pages.
std::size_t CsvFile::NextPiece(std::size_t start) const {
  const std::size_t room = kPage - (length_ % kPage);
  const auto next = std::upper_bound(row_ends_.begin(), row_ends_.end(), start);
  const auto beyond = std::upper_bound(next, row_ends_.end(), start + room);
  return (beyond == next ? *next : *(beyond - 1)) - start;
}

// If a write fails partway, the part that was written is removed again; errno is preserved, because
// the two calls that do so change it.
void CsvFile::WritePiece(std::string_view piece) {
  const std::size_t done = WriteAll(fd_, piece);
  if (done < piece.size()) {
    const int error = errno;
    if (done > 0 && ftruncate(fd_, length_) == 0) lseek(fd_, length_, SEEK_SET);
    Fail("cannot be written", error);
  }
  length_ += piece.size();
}

// Pieces that were written leave the buffer even if a later one fails, so that a second Flush
// writes no row twice.
void CsvFile::Flush() {
  std::size_t start = 0;
  try {
    while (start < buffer_.size()) {
      const std::size_t size = NextPiece(start);
      WritePiece(std::string_view(buffer_).substr(start, size));
      start += size;
    }
  } catch (...) {
    buffer_.erase(0, start);
    std::erase_if(row_ends_, [&](std::size_t end) { return end <= start; });
    for (std::size_t& end : row_ends_) end -= start;
    throw;
  }
  buffer_.clear();
  row_ends_.clear();
  if (!IsStillNamed(fd_, path_)) {
    throw OutputError(
        path_ +
        ": was deleted, moved or replaced while the run wrote it (or its folder was), "
        "so the run ends; start it again, or go on with --resume where it lies now");
  }
}

std::int64_t CsvFile::Sync() {
  Flush();
  if (!SyncFile(fd_)) Fail("cannot be synced", errno);  // a disk that lost data
  return length_;
}

void CsvFile::Fail(const std::string& doing, int error) const {
  telemetry::Fail(path_, doing, error);
}

}  // namespace ada::telemetry
