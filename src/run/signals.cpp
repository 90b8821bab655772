// The first signal only stores a number, which is all that a handler may safely do; the training
// loop decides what to do about it (Session::Agreed).
#include "run/signals.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>

namespace ada::run {
namespace {

// The signal that came, 0 if none. A handler gets no context, so this is global, and only one
// SignalWatch may live at a time. The handler may run on any thread of the process.
std::atomic<int> received = 0;
static_assert(std::atomic<int>::is_always_lock_free);

// For SIGINT and SIGTERM, which somebody sends again who does not want to wait. The second one gets
// the default action back and is raised again, so that the process ends as its parent expects.
extern "C" void OnSignal(int number) {
  if (received == SIGINT || received == SIGTERM) {
    std::signal(number, SIG_DFL);
    std::raise(number);
    return;
  }
  received = number;
}

// For signals that are repeated by themselves: the kernel and the shell each send SIGHUP where a
// terminal closes, SIGXCPU comes again each second, and a scheduler tells the step and the job of
// the end. They never replace one that came before.
extern "C" void OnRepeated(int number) {
  if (received == 0) received = number;
}

struct Handled {
  int number;
  void (*handler)(int);
};
constexpr std::array<Handled, 11> kHandled = {{{SIGINT, OnSignal},
                                               {SIGTERM, OnSignal},
                                               {SIGHUP, OnRepeated},
                                               {SIGXCPU, OnRepeated},
                                               {SIGUSR1, OnRepeated},
                                               {SIGUSR2, OnRepeated},
                                               {SIGALRM, OnRepeated},
                                               {SIGVTALRM, OnRepeated},
                                               {SIGPROF, OnRepeated},
                                               {SIGPWR, OnRepeated},
                                               {SIGPIPE, OnRepeated}}};

// Who ignores a signal wants the run to go on (nohup); who has a handler for it, as a profiler for
// SIGPROF, asks for no end by it.
bool IsTaken(const Handled& signal, const struct sigaction& before) {
  return signal.handler == OnRepeated && before.sa_handler != SIG_DFL;
}

}  // namespace

struct SignalWatch::Saved {
  std::array<struct sigaction, kHandled.size()> before;
};

SignalWatch::SignalWatch() : saved_(new Saved{}) {
  received = 0;
  for (std::size_t i = 0; i < kHandled.size(); ++i) {
    struct sigaction action = {}, &before = saved_->before[i];
    action.sa_handler = kHandled[i].handler;
    // Reads and writes that a signal interrupts go on: no caller has to handle EINTR.
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(kHandled[i].number, nullptr, &before);
    if (!IsTaken(kHandled[i], before)) sigaction(kHandled[i].number, &action, nullptr);
  }
}

// What is repeated by itself must not kill a run that it has ended already and that is about to
// return. The reader of a closed pipe stays gone, so that SIGPIPE gets its old action back.
SignalWatch::~SignalWatch() {
  for (std::size_t i = 0; i < kHandled.size(); ++i) {
    const auto [number, handler] = kHandled[i];
    if (number == received && handler == OnRepeated && number != SIGPIPE)
      std::signal(number, SIG_IGN);
    else
      sigaction(number, &saved_->before[i], nullptr);
  }
  delete saved_;
}

int SignalWatch::signal() const { return received; }

}  // namespace ada::run
