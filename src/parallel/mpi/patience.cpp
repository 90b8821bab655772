// Waits in three stages, and after the time limit asks all processes to tell which of them do not
// answer.
#include "parallel/mpi/patience.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "error.h"

namespace ada::parallel {
namespace {

constexpr int kAsk = 1, kHere = 2;                       // tags of empty messages
constexpr double kAnswerWithin = 5, kAnswerEvery = 0.1;  // seconds
// A message between processes of one machine takes microseconds: that long a thread that hurries
// looks without leaving its core. Then it leaves the core to whoever has work, for as long as
// processes that compute the same come one after the other; then it sleeps.
constexpr int kLooks = 300, kYields = 2000;
constexpr std::chrono::microseconds kNap{30};

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void CheckMpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw DeviceError(std::string(what) + ": " + std::string(text, static_cast<std::size_t>(length)));
}

Patience::Patience(MPI_Comm comm, const std::vector<std::string>& hosts)
    : comm_(comm), hosts_(hosts) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &ranks_);
}

void Patience::Wait(MPI_Request& request, bool hurries) {
  const auto is_done = [&request] {
    int done = 0;
    CheckMpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "a message between processes");
    return done != 0;
  };
  WaitUntil(is_done, hurries);
}

void Patience::WaitUntil(const std::function<bool()>& done, bool hurries) {
  double start = 0, answered = 0;
  for (int tried = hurries ? 0 : kLooks + kYields;; ++tried) {
    if (done()) return;
    if (tried < kLooks) continue;
    if (tried < kLooks + kYields) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kNap);
    const double now = Now();
    if (start == 0) start = answered = now;
    if (now - answered > kAnswerEvery) AnswerAsks(), answered = now;
    if (now - start > timeout_) Report(now - start);
  }
}

// Messages are empty: their tags carry the meaning. The mutex keeps probe and receive together.
void Patience::AnswerAsks() {
  const std::lock_guard lock(mutex_);
  for (;;) {
    int asked = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kAsk, comm_, &asked, &status);
    if (asked == 0) return;
    MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kAsk, comm_, MPI_STATUS_IGNORE);
    MPI_Send(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kHere, comm_);
  }
}

// Who answers.
// Others may be asking at the same time, so that asks are answered here as well.
std::vector<bool> Patience::AskAll() {
  std::vector<bool> here(static_cast<std::size_t>(ranks_));
  here[static_cast<std::size_t>(rank_)] = true;
  for (int other = 0; other < ranks_; ++other)
    if (other != rank_) MPI_Send(nullptr, 0, MPI_BYTE, other, kAsk, comm_);
  const double patience = std::min(kAnswerWithin, std::max(1.0, timeout_.load()));
  for (const double start = Now(); Now() - start < patience;) {
    AnswerAsks();
    int answered = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, kHere, comm_, &answered, &status);
    if (answered != 0) {
      MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kHere, comm_, MPI_STATUS_IGNORE);
      here[static_cast<std::size_t>(status.MPI_SOURCE)] = true;
    } else {
      if (std::all_of(here.begin(), here.end(), [](bool is) { return is; })) break;
      std::this_thread::sleep_for(kNap);
    }
  }
  return here;
}

// Nobody missing: then it is the network that lost something.
void Patience::Report(double waited) {
  const std::lock_guard asking(asking_);
  const std::vector<bool> here = AskAll();
  std::string missing;
  for (std::size_t other = 0; other < here.size(); ++other)
    if (!here[other])
      missing += (missing.empty() ? "" : ", ") + ("rank " + std::to_string(other)) + " (host " +
                 hosts_[other] + ")";
  const std::string limit = " for " + std::to_string(static_cast<int>(waited + 0.5)) +
                            " seconds (parallel.timeout_seconds): ";
  if (missing.empty())
    throw DeviceError("all processes answer, but what they sent each other has not come" + limit +
                      "the network between them may be at fault");
  throw DeviceError(missing + " took no part in the run" + limit +
                    "stopped, hanging, or busy with something else for so long");
}

}  // namespace ada::parallel
