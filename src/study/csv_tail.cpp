#include "study/csv_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ada::study {
namespace {

constexpr std::int64_t kPiece = 1 << 20, kRemembered = 256, kMostHeader = 65536;

std::string ReadAt(int fd, std::int64_t offset, std::int64_t size) {
  std::string text(static_cast<std::size_t>(size), '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got =
        pread(fd, text.data() + done, text.size() - done, offset + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  text.resize(done);
  return text;
}

// 0 where the system does not say.
std::int64_t SizeOf(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? static_cast<std::int64_t>(status.st_size) : 0;
}

// Closes what it holds.
struct File {
  explicit File(const std::string& path) : fd(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (fd >= 0) close(fd);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd;
};

}  // namespace

std::vector<std::vector<std::string>> SplitCsv(std::string_view text, std::size_t* used) {
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row;
  std::string field;
  bool quoted = false;
  *used = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"' && field.empty()) {
      quoted = true;
    } else if (c == ',' || c == '\n') {
      row.push_back(std::move(field));
      field.clear();
      if (c == ',') continue;
      rows.push_back(std::move(row));
      row.clear();
      *used = i + 1;
    } else {
      field += c;
    }
  }
  return rows;
}

bool CsvTail::Changed() const {
  if (header_.empty()) return false;
  const File file(path_);
  if (file.fd < 0 || SizeOf(file.fd) < offset_) return true;
  const auto remembered = static_cast<std::int64_t>(last_.size());
  return ReadAt(file.fd, offset_ - remembered, remembered) != last_;
}

void CsvTail::Restart() {
  header_.clear();
  last_.clear();
  offset_ = 0;
}

// Reads the header and goes to where the rows that matter begin.
void CsvTail::Start(int fd, std::int64_t size) {
  Restart();
  const std::string first = ReadAt(fd, 0, std::min(size, kMostHeader));
  const std::size_t end = first.find('\n');
  if (end == std::string::npos) return;
  std::size_t used = 0;
  header_ = SplitCsv(std::string_view(first).substr(0, end + 1), &used).front();
  offset_ = static_cast<std::int64_t>(end) + 1;
  last_ = first.substr(0, end + 1);
  if (size - offset_ <= window_) return;
  const std::int64_t from = size - window_;
  const std::string piece = ReadAt(fd, from, kMostHeader);
  const std::size_t line = piece.find('\n');
  offset_ = from + static_cast<std::int64_t>(line == std::string::npos ? 0 : line + 1);
  last_.clear();
}

void CsvTail::Read(const std::function<void(const std::vector<std::string>&)>& row) {
  const File file(path_);
  if (file.fd < 0) return;
  const std::int64_t size = SizeOf(file.fd);
  if (header_.empty()) Start(file.fd, size);
  if (header_.empty()) return;
  std::string rest;
  for (std::int64_t at = offset_; at < size;) {
    const std::string piece = ReadAt(file.fd, at, std::min(kPiece, size - at));
    if (piece.empty()) break;
    at += static_cast<std::int64_t>(piece.size());
    rest += piece;
    std::size_t used = 0;
    for (const auto& fields : SplitCsv(rest, &used)) {
      if (fields.size() == header_.size()) row(fields);
    }
    offset_ += static_cast<std::int64_t>(used);
    last_ += rest.substr(0, used);
    last_.erase(0, last_.size() - std::min<std::size_t>(last_.size(), kRemembered));
    rest.erase(0, used);
  }
}

int CsvTail::Column(std::string_view name) const {
  const auto found = std::find(header_.begin(), header_.end(), name);
  return found == header_.end() ? -1 : static_cast<int>(found - header_.begin());
}

}  // namespace ada::study
