// Makes the system refuse threads: for a child process, before it runs or execs the tested code.
#pragma once
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace ada::testing {

// Whether LimitThreads can leave a process more threads than one: the kernel counts those of a
// user, and only root can become a user who has no others.
inline bool LimitsThreadsExactly() { return geteuid() == 0; }

// From now on this process has at most `threads` threads, or one where that is all that can be
// had. Files stay as readable as they were.
inline void LimitThreads(int threads) {
  if (LimitsThreadsExactly()) {
    constexpr uid_t kNobodyElse = 61234;
    if (setresuid(kNobodyElse, 0, 0) != 0) _exit(125);
    for (const int capability : {CAP_SYS_RESOURCE, CAP_SYS_ADMIN}) {
      prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);  // for the program that it becomes
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct data[2] = {};
      syscall(SYS_capget, &header, data);
      data[0].effective &= ~(1u << capability);
      syscall(SYS_capset, &header, data);
    }
  } else {
    threads = 1;
  }
  const rlimit limit = {static_cast<rlim_t>(threads), static_cast<rlim_t>(threads)};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0) _exit(125);
  // A search for leaks wants a process of its own.
  const char* options = std::getenv("ASAN_OPTIONS");
  setenv("ASAN_OPTIONS", (std::string(options ? options : "") + ":detect_leaks=0").c_str(), 1);
}

}  // namespace ada::testing
