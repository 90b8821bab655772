// Waiting for other processes: with a limit, and with the names of those that do not come.
#pragma once
#include <mpi.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

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

}  // namespace ada::parallel
