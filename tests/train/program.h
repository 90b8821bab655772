// Runs the program under test (ADA_BINARY) as a child process in a folder of the test's own, and
// keeps what it printed, how it ended and how much memory it used. What runs write: run_files.h.
#pragma once
#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iterator>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ada::testing {

struct Outcome {
  int code = -1;   // exit status; -1: ended by `signal`
  int signal = 0;  // that ended it; 0: none
  std::string out, err;
  std::int64_t peak_kib = 0;  // largest resident set
};

class Child {
 public:
  // Starts the program in `folder`. `file_limit`: bytes that a file may have; a write beyond fails
  // as on a full disk. Below 0: no limit.
  Child(const std::vector<std::string>& arguments, std::string folder, std::int64_t file_limit = -1)
      : Child(arguments, std::move(folder), [file_limit] { LimitFiles(file_limit); }) {}
  // `prepare` is called in the child, before it becomes the program.
  Child(const std::vector<std::string>& arguments, std::string folder,
        const std::function<void()>& prepare)
      : folder_(std::move(folder)) {
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork failed");
    if (pid_ == 0) Become(arguments, prepare);
  }
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;

  void Signal(int number) const { kill(pid_, number); }

  // Looks every millisecond until `condition` holds; false: the program ended before that.
  bool WaitUntil(const std::function<bool()>& condition) const {
    while (!condition()) {
      siginfo_t info = {};
      waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
      if (info.si_pid == pid_) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }

  Outcome Wait() {
    int status = 0;
    rusage usage = {};
    if (wait4(std::exchange(pid_, -1), &status, 0, &usage) < 0)
      throw std::runtime_error("wait4 failed");
    Outcome o;
    if (WIFEXITED(status)) o.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) o.signal = WTERMSIG(status);
    o.out = Text("stdout.txt");
    o.err = Text("stderr.txt");
    o.peak_kib = usage.ru_maxrss;
    return o;
  }

 private:
  static void LimitFiles(std::int64_t bytes) {
    if (bytes < 0) return;
    const rlimit limit = {static_cast<rlim_t>(bytes), static_cast<rlim_t>(bytes)};
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  [[noreturn]] void Become(const std::vector<std::string>& arguments,
                           const std::function<void()>& prepare) {
    if (chdir(folder_.c_str()) != 0) _exit(126);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(open("stdout.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
    dup2(open("stderr.txt", O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
    prepare();
    std::vector<char*> argv = {const_cast<char*>(ADA_BINARY)};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(ADA_BINARY, argv.data());
    _exit(127);
  }

  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::string folder_;
  pid_t pid_ = -1;
};

inline Outcome Run(const std::vector<std::string>& arguments, const std::string& folder,
                   std::int64_t file_limit = -1) {
  return Child(arguments, folder, file_limit).Wait();
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Checks the exit status; a failure shows what the program said.
#define ADA_CHECK_EXIT(outcome, wanted)                              \
  do {                                                               \
    INFO("stderr: ", (outcome).err, "\nsignal: ", (outcome).signal); \
    CHECK((outcome).code == (wanted));                               \
  } while (false)
#define ADA_REQUIRE_EXIT(outcome, wanted)                            \
  do {                                                               \
    INFO("stderr: ", (outcome).err, "\nsignal: ", (outcome).signal); \
    REQUIRE((outcome).code == (wanted));                             \
  } while (false)

}  // namespace ada::testing
