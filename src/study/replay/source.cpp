// The input of a replay: a file, or what comes through a pipe, which is kept so that it can be read
// twice; or attempts that overflow at fixed distances, at random, or both.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "error.h"
#include "io/system_call.h"
#include "io/text.h"
#include "number/random.h"
#include "study/replay/attempts.h"
#include "telemetry/csv_reader.h"

namespace ada::study {

namespace {

constexpr std::size_t kPiece = 1 << 16;
constexpr std::uint64_t kMostPiped = std::uint64_t{1} << 30;  // bytes that are kept of a pipe

// Carriage returns end lines, too: progress bars rewrite one line thousands of times.
constexpr char kLineEnds[] = "\n\r";

// The next piece of at most kPiece bytes; empty: the end.
std::string_view NextPiece(int fd, const std::string& name, std::vector<char>& buffer) {
  buffer.resize(kPiece);
  const ssize_t n = Retried([&] { return read(fd, buffer.data(), buffer.size()); });
  if (n < 0) throw DataError(name + ": " + std::strerror(errno));
  return {buffer.data(), static_cast<std::size_t>(n)};
}

// A file in memory with what `fd`, a pipe or a device, gives. A line that is longer than any row
// ends it: its reader refuses that.
int CopyToMemory(int fd, const std::string& name) {
  const int kept = memfd_create("trace", MFD_CLOEXEC);
  std::uint64_t bytes = 0;
  std::size_t line = 0;
  std::vector<char> buffer;
  try {
    if (kept < 0) throw DataError(name + ": cannot be kept in memory: " + std::strerror(errno));
    while (line <= 2 * telemetry::kMostRecordBytes) {
      const std::string_view piece = NextPiece(fd, name, buffer);
      if (piece.empty()) break;
      bytes += piece.size();
      if (bytes > kMostPiped)
        throw DataError(name + ": gives more than " + HumanBytes(kMostPiped) +
                        "; expected as much in a file, which is read row by row");
      if (WriteAll(kept, piece) != piece.size())
        throw DataError(name + ": cannot be kept in memory: " + std::strerror(errno));
      const std::size_t end = piece.find_last_of(kLineEnds);
      line = end == std::string_view::npos ? line + piece.size() : piece.size() - end - 1;
    }
  } catch (...) {
    if (kept >= 0) CloseFile(kept);
    throw;
  }
  return kept;
}

// The descriptor and name of the input at `path`; `-` is standard input.
std::pair<int, std::string> Open(const std::string& path) {
  if (path == "-") {
    const int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) throw DataError(std::string("standard input: ") + std::strerror(errno));
    return {fd, "standard input"};
  }
  std::string problem;
  const int fd = OpenToRead(path, Pipes::kOffered, &problem);
  if (fd < 0) throw DataError(path + ": " + problem);
  return {fd, path};
}

bool IsFile(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
}

}  // namespace

TraceSource::TraceSource(const std::string& path) {
  std::tie(fd_, name_) = Open(path);
  if (IsFile(fd_)) {
    begin_ = lseek(fd_, 0, SEEK_CUR);  // of standard input, some may have been read
    return;
  }
  const int given = std::exchange(fd_, -1);
  try {
    fd_ = CopyToMemory(given, name_);
  } catch (...) {
    CloseFile(given);
    throw;
  }
  CloseFile(given);
}

TraceSource::~TraceSource() {
  if (fd_ >= 0) CloseFile(fd_);
}

int TraceSource::FromStart() const {
  const int fd = fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (fd >= 0 && lseek(fd, begin_, SEEK_SET) >= 0) return fd;
  const int error = errno;
  if (fd >= 0) CloseFile(fd);
  throw DataError(name_ + ": " + std::strerror(error));
}

bool TraceSource::ForLines(const std::function<void(std::string_view)>& take) const {
  if (lseek(fd_, begin_, SEEK_SET) < 0) throw DataError(name_ + ": " + std::strerror(errno));
  std::string rest;  // of a line whose end is not read yet
  std::vector<char> buffer;
  for (;;) {
    std::string_view piece = NextPiece(fd_, name_, buffer);
    if (piece.empty()) break;
    for (std::size_t end = 0; (end = piece.find_first_of(kLineEnds)) != std::string_view::npos;) {
      rest += piece.substr(0, end);
      piece.remove_prefix(end + 1);
      if (!rest.empty()) take(rest);
      rest.clear();
    }
    rest += piece;
    if (rest.size() > telemetry::kMostRecordBytes) return false;
  }
  if (!rest.empty()) take(rest);
  return true;
}

namespace {

// Each attempt draws the same numbers whatever the pattern asks of it: seeds stay comparable.
class MadeUp : public Attempts {
 public:
  MadeUp(const ReplayPattern& pattern, bool wants_amax)
      : pattern_(pattern), wants_amax_(wants_amax), random_(pattern.seed, StreamId("replay")) {}

  bool Next(scaling::StepOutcome& outcome) override {
    ++attempt_;
    outcome = {};
    outcome.overflow = pattern_.every > 0 && attempt_ % pattern_.every == 0;
    // The random number is drawn first, so it is drawn also where the attempt overflows anyway.
    outcome.overflow = random_.Uniform() < pattern_.overflow || outcome.overflow;
    const double magnitude = std::exp2(random_.Normal());
    if (wants_amax_) outcome.amax = outcome.overflow ? INFINITY : magnitude;
    return true;
  }

  std::string Describe() const override {
    std::string text = "made-up trace of " + Counted(pattern_.steps, "step") + ": ";
    if (pattern_.every == 0 && pattern_.overflow == 0) return text + "nothing overflows";
    if (pattern_.every > 0) text += "1 attempt in " + std::to_string(pattern_.every) + " overflows";
    if (pattern_.every > 0 && pattern_.overflow > 0) text += ", ";
    if (pattern_.overflow > 0)
      text += ShortestText(100 * pattern_.overflow) + " % at random (seed " +
              std::to_string(pattern_.seed) + ")";
    return text;
  }

 private:
  const ReplayPattern pattern_;
  const bool wants_amax_;
  RandomStream random_;
  std::int64_t attempt_ = 0;
};

}  // namespace

std::unique_ptr<Attempts> MakeUp(const ReplayPattern& pattern, bool wants_amax) {
  return std::make_unique<MadeUp>(pattern, wants_amax);
}

}  // namespace ada::study
