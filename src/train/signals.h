// SIGINT and SIGTERM as a flag that the training loop reads between steps. A second signal ends the
// process at once, as without a handler.
#pragma once

namespace ada::train {

class SignalWatch {
 public:
  SignalWatch();   // installs the handlers
  ~SignalWatch();  // puts the old ones back
  SignalWatch(const SignalWatch&) = delete;
  int signal() const;  // 0: none yet

 private:
  struct Saved;
  Saved* saved_;
};

}  // namespace ada::train
