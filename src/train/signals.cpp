#include "train/signals.h"

#include <csignal>

namespace ada::train {
namespace {

volatile std::sig_atomic_t received = 0;

extern "C" void OnSignal(int number) {
  if (received != 0 && received != SIGPIPE) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  received = number;
}

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
