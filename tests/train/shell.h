// Runs the program through the shell: with closed streams, limits, or system calls that fail as
// strace has them fail.
#pragma once
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "train/run_files.h"
#include "train/small_run.h"

namespace ada::testing {

// `command` in `folder`; $ADA is the program. Its output goes to stdout.txt and stderr.txt there,
// unless it says otherwise.
inline Outcome Shell(const TempFolder& folder, const std::string& command) {
  const std::string line = "cd '" + folder.path() + "' && ADA='" + ADA_BINARY + "' && { " +
                           command + "; } >stdout.txt 2>stderr.txt";
  const int status = std::system(line.c_str());
  Outcome o;
  o.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  o.out = ReadBytes(folder / "stdout.txt");
  o.err = ReadBytes(folder / "stderr.txt");
  return o;
}

// Why no system call can be made to fail here; "": it can.
inline std::string WhyNoFaults() {
  const int status = std::system("strace -f -qq -o /dev/null true >/dev/null 2>&1");
  return status == 0 ? "" : "strace is missing here, or may trace nothing";
}

// The program's command line under strace, with faults such as "inject=fsync:error=EINTR". Leaks
// cannot be looked for meanwhile.
inline std::string Faulty(const std::string& faults) {
  return "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 strace -f -qq -o /dev/null -e " + faults +
         " $ADA --no-progress ";
}

}  // namespace ada::testing
