// SIGINT, SIGTERM, SIGHUP, SIGXCPU and SIGPIPE as a flag that the training loop reads between
// steps. A second SIGINT or SIGTERM ends the process at once, as without a handler; SIGHUP (the
// terminal is closed), SIGXCPU (the CPU time is nearly up) and SIGPIPE (the reader of the output is
// gone) never do, and stay ignored if they were ignored before.
#pragma once

namespace ada::run {

// Made by Train after all checks, so that a run which has not begun is ended by a signal as any
// program. Only one may exist at a time. In a run of several processes each has its own, and the
// session agrees on what they saw.
class SignalWatch {
 public:
  SignalWatch();   // installs the handlers
  ~SignalWatch();  // puts the old ones back; a SIGHUP or SIGXCPU that came is ignored from then on
  SignalWatch(const SignalWatch&) = delete;
  int signal() const;  // 0: none yet

 private:
  struct Saved;
  Saved* saved_;
};

}  // namespace ada::run
