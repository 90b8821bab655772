// The first signal only stores a number, which is all that a handler may safely do; the training
// loop decides what to do about it (Session::Agreed).
#include "train/signals.h"

#include <atomic>
#include <csignal>

namespace ada::train {
namespace {

// The signal that came, 0 if none. A handler gets no context, so this is global, and only one
// SignalWatch may live at a time. The handler may run on any thread of the process.
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// For SIGINT and SIGTERM. The second one gets the default action back and is raised again, so that
// the process ends as its parent expects; a closed pipe before does not count as the first.
extern "C" void OnSignal(int number) {
  if (received != 0 && received != SIGPIPE) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  received = number;
}

// A closed pipe never replaces an interrupt that came before it.
extern "C" void OnClosedPipe(int number) {
  if (received == 0) received = number;
}

}  // namespace

struct SignalWatch::Saved {
  struct sigaction interrupt, terminate, pipe;
};

SignalWatch::SignalWatch() : saved_(new Saved{}) {
  received = 0;
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  // Reads and writes that a signal interrupts go on: no caller has to handle EINTR.
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &saved_->interrupt);
  sigaction(SIGTERM, &action, &saved_->terminate);
  action.sa_handler = OnClosedPipe;
  sigaction(SIGPIPE, &action, &saved_->pipe);
  if (saved_->pipe.sa_handler == SIG_IGN) sigaction(SIGPIPE, &saved_->pipe, nullptr);
}

SignalWatch::~SignalWatch() {
  sigaction(SIGINT, &saved_->interrupt, nullptr);
  sigaction(SIGTERM, &saved_->terminate, nullptr);
  sigaction(SIGPIPE, &saved_->pipe, nullptr);
  delete saved_;
}

int SignalWatch::signal() const { return received; }

}  // namespace ada::train
