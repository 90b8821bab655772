// CsvFollower: goes on where it stopped, and knows by the last bytes whether that is still there.
#include <algorithm>
#include <memory>

#include "error.h"
#include "io/system_call.h"
#include "telemetry/csv_reader.h"

namespace ada::telemetry {

// The last bytes tell: a row holds the step and numbers of many digits, so that another run hardly
// has the same bytes in the same place.
bool CsvFollower::Changed() const {
  if (header_.empty()) return false;
  std::string ignored;
  const int fd = OpenToRead(path_, Pipes::kRefused, &ignored);
  if (fd < 0) return true;
  const auto size = static_cast<std::int64_t>(last_.size());
  const bool same = SizeOfFile(fd) >= offset_ && TextAt(fd, offset_ - size, last_.size()) == last_;
  CloseFile(fd);
  return !same;
}

void CsvFollower::Restart() {
  header_.clear();
  last_.clear();
  offset_ = 0;
}

void CsvFollower::Read(const std::function<void(CsvReader&)>& read) {
  std::unique_ptr<CsvReader> file;
  jumped_ = false;
  try {
    file.reset(new CsvReader(path_, header_, offset_));
  } catch (const DataError&) {  // not there yet
    return;
  }
  if (file->header().empty()) return;
  const std::int64_t size = SizeOfFile(file->fd_);
  // A jump lands within a row, most likely: reading begins after the next line end.
  if (header_.empty() && size - file->offset() > window_) {
    file->GoTo(size - window_);
    file->SkipLine();
    jumped_ = true;
  }
  read(*file);
  header_ = file->header();
  offset_ = file->offset();
  const std::size_t kept = std::min(file->start_, CsvReader::kRemembered);
  last_ = file->buffer_.substr(file->start_ - kept, kept);
}

}  // namespace ada::telemetry
