// Processes that an MPI launcher started. MPI's own exceptions are off: errors are codes. Patience
// waits for other processes in three stages, and after the time limit asks all of them to tell
// which do not answer.
#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "error.h"
#include "parallel/world.h"

namespace ada::parallel {

// Throws DeviceError with MPI's error text if `code` is not success.
void CheckMpi(int code, const char* what);

// All waiting of a process goes through one of these; safe from several threads.
class Patience {
 public:
  // `comm` is for its own messages alone. It and `hosts` outlive it.
  Patience(MPI_Comm comm, const std::vector<std::string>& hosts);
  void SetTimeout(double seconds) { timeout_ = seconds; }

  // Until `request` is complete. Where that takes longer than the timeout all other processes are
  // asked whether they are there; DeviceError names those that do not answer. A process answers
  // while it waits itself: who computes, writes or is stopped for so long does not.
  // hurries: the thread looks without sleeping for a while, since nothing else is to be done; else
  // another thread of the process is at work on its core.
  void Wait(MPI_Request& request, bool hurries);
  // The same until done() is true, for conditions that MPI does not know.
  void WaitUntil(const std::function<bool()>& done, bool hurries);

 private:
  void AnswerAsks();
  std::vector<bool> AskAll();
  [[noreturn]] void Report(double waited);

  MPI_Comm comm_;
  const std::vector<std::string>& hosts_;
  int rank_ = 0, ranks_ = 1;
  std::atomic<double> timeout_{300};
  std::mutex mutex_;   // guards the messages
  std::mutex asking_;  // held by the thread that asks: answers do not say whose they are
};

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

// "Open MPI v4.1.4": the beginning of the library's version text.
std::string NameOfLibrary() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text, static_cast<std::size_t>(length));
  return all.substr(0, all.find_first_of(",\n"));
}

// Whether a launcher started this process: mpirun, srun --mpi=pmix, or one that speaks PMI.
bool WasLaunched() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK"})
    if (std::getenv(name) != nullptr) return true;
  return false;
}

// A communicator of one's own keeps messages of different threads apart.
MPI_Comm CopyOf(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  CheckMpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  return copy;
}

// What the communicators of a program share: how they wait, and the end of MPI, which comes when
// the last of them is destroyed.
class MpiProgram {
 public:
  explicit MpiProgram(std::vector<std::string> hosts)
      : hosts_(std::move(hosts)), patience_(CopyOf(MPI_COMM_WORLD), hosts_) {}
  // Waits for all others, so that it is not to be called while an error is on its way.
  ~MpiProgram() { MPI_Finalize(); }
  MpiProgram(const MpiProgram&) = delete;
  Patience& patience() { return patience_; }

 private:
  const std::vector<std::string> hosts_;
  Patience patience_;
};

// Calls are non-blocking, and Patience waits for them, which can tell which process does not
// respond. A count in MPI is an int, so one call moves less than 2 GiB.
class MpiCommunicator final : public Communicator {
 public:
  // All processes make theirs in the same order. hurries: see Patience::Wait.
  MpiCommunicator(std::shared_ptr<MpiProgram> program, bool hurries)
      : program_(std::move(program)),
        patience_(program_->patience()),
        comm_(CopyOf(MPI_COMM_WORLD)),
        hurries_(hurries) {
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &ranks_);
  }
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }

  void AllGather(const void* mine, std::size_t bytes, void* all) override {
    MPI_Request request;
    const int n = CountOf(bytes);
    CheckMpi(MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, comm_, &request),
             "gathering from processes");
    patience_.Wait(request, hurries_);
  }
  void AllToAll(const void* mine, std::size_t bytes, void* parts) override {
    MPI_Request request;
    const int n = CountOf(bytes);
    CheckMpi(MPI_Ialltoall(mine, n, MPI_BYTE, parts, n, MPI_BYTE, comm_, &request),
             "an exchange between processes");
    patience_.Wait(request, hurries_);
  }
  void WaitUntil(const std::function<bool()>& done) override {
    patience_.WaitUntil(done, /*hurries=*/true);
  }
  void SetTimeout(double seconds) override { patience_.SetTimeout(seconds); }
  [[noreturn]] void Abort(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    std::_Exit(exit_code);
  }

 private:
  static int CountOf(std::size_t bytes) {
    ADA_CHECK(bytes <= INT_MAX);
    return static_cast<int>(bytes);
  }
  const std::shared_ptr<MpiProgram> program_;
  Patience& patience_;  // the program's: one for all, with one timeout
  const MPI_Comm comm_;
  const bool hurries_;
  int rank_ = 0, ranks_ = 1;
};

std::vector<std::string> HostsOf(int ranks) {
  char name[MPI_MAX_PROCESSOR_NAME] = {};
  int length = 0;
  MPI_Get_processor_name(name, &length);
  std::vector<char> all(static_cast<std::size_t>(ranks) * sizeof name);
  CheckMpi(
      MPI_Allgather(name, sizeof name, MPI_CHAR, all.data(), sizeof name, MPI_CHAR, MPI_COMM_WORLD),
      "MPI_Allgather");
  std::vector<std::string> hosts;
  for (int rank = 0; rank < ranks; ++rank)
    hosts.emplace_back(all.data() + static_cast<std::size_t>(rank) * sizeof name);
  return hosts;
}

// The lowest rank of a node stands for it; numbers follow in the order in which ranks name them.
std::vector<int> NodesOf(int rank, int ranks) {
  MPI_Comm node = MPI_COMM_NULL;
  CheckMpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
           "MPI_Comm_split_type");
  int first = rank;
  CheckMpi(MPI_Bcast(&first, 1, MPI_INT, 0, node), "MPI_Bcast");
  MPI_Comm_free(&node);
  std::vector<int> firsts(static_cast<std::size_t>(ranks));
  CheckMpi(MPI_Allgather(&first, 1, MPI_INT, firsts.data(), 1, MPI_INT, MPI_COMM_WORLD),
           "MPI_Allgather");
  std::map<int, int> numbers;
  std::vector<int> nodes;
  for (const int of : firsts)
    nodes.push_back(numbers.emplace(of, static_cast<int>(numbers.size())).first->second);
  return nodes;
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

// Threads of a run send at the same time: sums of gradients on one, all else on another.
World StartWorld() {
  if (!WasLaunched()) return {};
  int provided = MPI_THREAD_SINGLE, rank = 0, ranks = 1;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
    throw DeviceError("MPI cannot be started (" + NameOfLibrary() + ")");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (ranks == 1) {
    MPI_Finalize();
    return {};
  }
  if (provided < MPI_THREAD_MULTIPLE)
    throw DeviceError("the MPI library (" + NameOfLibrary() +
                      ") lets only one thread of a process send; install one built with "
                      "MPI_THREAD_MULTIPLE");
  std::vector<std::string> hosts = HostsOf(ranks);
  std::vector<int> nodes = NodesOf(rank, ranks);
  const auto program = std::make_shared<MpiProgram>(hosts);
  auto small = std::make_unique<MpiCommunicator>(program, /*hurries=*/true);
  auto large = std::make_unique<MpiCommunicator>(program, /*hurries=*/false);
  return {std::move(hosts), std::move(nodes), NameOfLibrary(), std::move(small), std::move(large)};
}

std::string LibraryName() { return NameOfLibrary(); }

}  // namespace ada::parallel
