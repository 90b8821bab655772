// Signals that ask for the end, as a flag that the training loop reads between steps: SIGINT and
// SIGTERM, of which a second one ends the process at once, as without a handler; SIGHUP (the
// terminal is closed), SIGXCPU (the CPU time is nearly up), SIGUSR1 and SIGUSR2 (a scheduler's
// notice that the time is nearly up), SIGALRM, SIGVTALRM, SIGPROF and SIGPWR (timers, the power)
// and SIGPIPE (the reader of the output is gone), which never do. The latter stay as they are where
// they were ignored before, or where a library has a handler of its own.
#pragma once

namespace ada::run {

// Made by Train after all checks, so that a run which has not begun is ended by a signal as any
// program. Only one may exist at a time. In a run of several processes each has its own, and the
// session agrees on what they saw.
class SignalWatch {
 public:
  SignalWatch();   // installs the handlers
  ~SignalWatch();  // puts the old ones back; one that came and comes again by itself is ignored
  SignalWatch(const SignalWatch&) = delete;
  int signal() const;  // 0: none yet

 private:
  struct Saved;
  Saved* saved_;
};

}  // namespace ada::run
