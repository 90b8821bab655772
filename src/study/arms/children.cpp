// Trains: each training is a child process of this program, so that one that ends by an error takes
// no other with it, and a stopped command goes on from their checkpoints.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <thread>

#include "error.h"
#include "run/signals.h"
#include "study/arms/arms.h"
#include "study/run_files.h"
#include "telemetry/progress.h"
#include "telemetry/run_folder.h"

namespace ada::study {
namespace {

constexpr auto kLook = std::chrono::milliseconds(100);
constexpr double kRedraw = 0.5;  // seconds between lines of progress

// Whether the training needs no process: it has ended as its configuration says.
bool IsOver(const Training& training, std::int64_t steps) {
  if (telemetry::InspectRunFolder(training.folder) != telemetry::FolderState::kFinished)
    return false;
  std::int64_t last = 0;
  EachRow<StepRow>(training.folder, [&](const StepRow& row) { last = row.step; });
  return last >= steps;
}

// The steps that a training has written so far: the lines of its steps.csv.
std::int64_t StepsWritten(const Training& training) {
  std::ifstream file(training.folder + "/steps.csv", std::ios::binary);
  std::int64_t lines = 0;
  for (char piece[1 << 14]; file.read(piece, sizeof piece) || file.gcount() > 0;)
    lines += std::count(piece, piece + file.gcount(), '\n');
  return std::max<std::int64_t>(lines - 1, 0);
}

// Starts a training. Its process has a group of its own, so that Ctrl-C reaches it once, through
// this program; it ends with this program, whatever ends that.
pid_t Start(const Training& training, const std::string& log_file) {
  std::vector<std::string> words = {"ada-train",   "train",   "--config",
                                    training.file, "--quiet", "--resume"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const int log = open(log_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (log < 0) throw OutputError(log_file + ": cannot be written: " + std::strerror(errno));
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(143);  // this program has ended meanwhile
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    execv("/proc/self/exe", arguments.data());
    _exit(127);
  }
  const int error = errno;
  close(log);
  if (nothing >= 0) close(nothing);
  if (child < 0)
    throw DeviceError(std::string("a process cannot be started: ") + std::strerror(error) +
                      "; fewer --jobs may help");
  return child;
}

// The trainings that are under way, and what is left of the others.
class Children {
 public:
  Children(ArmPlan& plan, telemetry::Log& log)
      : plan_(plan), log_(log), began_(telemetry::SteadySeconds()) {}

  // After a signal no other training begins: it is left to the next command.
  int Run() {
    const run::SignalWatch signals;
    std::size_t next = 0;
    for (;;) {
      const int signal = signals.signal();
      if (signal != 0 && !stopping_) {
        stopping_ = true;
        log_.SetStatus("");
        log_.Info(plan_.command + ": stopping; each training writes a checkpoint");
        for (const auto& [child, index] : running_) kill(child, SIGTERM);
      }
      while (signal == 0 && next < plan_.trainings.size() &&
             running_.size() < static_cast<std::size_t>(plan_.jobs))
        Begin(next++);
      if (running_.empty() && (signal != 0 || next == plan_.trainings.size())) break;
      Reap();
      if (!stopping_) Show();
      std::this_thread::sleep_for(kLook);
    }
    log_.SetStatus("");
    return signals.signal();
  }

 private:
  std::string LogOf(const Training& training) const {
    return plan_.out + "/configs/" + training.name + ".log";
  }

  void Begin(std::size_t index) {
    Training& training = plan_.trainings[index];
    if (IsOver(training, plan_.steps)) {
      training.exit_code = 0;
      ++over_;
      kept_ += plan_.steps;
      return;
    }
    at_start_[index] = StepsWritten(training);
    kept_ += at_start_[index];
    running_[Start(training, LogOf(training))] = index;
  }

  // Takes the results of processes that have ended.
  void Reap() {
    for (auto each = running_.begin(); each != running_.end();) {
      int status = 0;
      const pid_t ended = waitpid(each->first, &status, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) {
        ++each;
        continue;
      }
      Training& training = plan_.trainings[each->second];
      training.exit_code = ended > 0 && WIFEXITED(status)     ? WEXITSTATUS(status)
                           : ended > 0 && WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                                              : 70;
      made_ += StepsWritten(training) - at_start_[each->second];
      ++over_;
      each = running_.erase(each);
      ReportEnd(training);
    }
  }

  // One line for each that is over, where no line is redrawn.
  void ReportEnd(const Training& training) {
    if (training.exit_code != 0 && !(stopping_ && training.exit_code >= 128))
      log_.Warning(plan_.command + ": " + training.name + " ended with exit code " +
                   std::to_string(training.exit_code) + ", see " + LogOf(training));
    if (!log_.terminal()) log_.Info(Line());
  }

  void Show() {
    const double now = telemetry::SteadySeconds();
    if (!log_.terminal() || now - drawn_ < kRedraw) return;
    drawn_ = now;
    log_.SetStatus(Line());
  }

  // "choose: 3 of 7 trainings, bf16-seed1 at step 120 of 250, left 1:20".
  std::string Line() {
    std::int64_t made = made_, under_way = 0;
    std::string text = plan_.command + ": " + std::to_string(over_) + " of " +
                       std::to_string(plan_.trainings.size()) + " trainings";
    for (const auto& [child, index] : running_) {
      const std::int64_t steps = StepsWritten(plan_.trainings[index]);
      made += steps - at_start_[index];
      if (++under_way == 1)
        text += ", " + plan_.trainings[index].name + " at step " + std::to_string(steps) + " of " +
                std::to_string(plan_.steps);
    }
    const double seconds = telemetry::SteadySeconds() - began_;
    const auto all = static_cast<double>(plan_.trainings.size()) * static_cast<double>(plan_.steps);
    const double left = all - static_cast<double>(kept_ + made);
    if (made > 0 && left > 0)
      text += ", left " + telemetry::FormatDuration(left * seconds / static_cast<double>(made));
    return text;
  }

  ArmPlan& plan_;
  telemetry::Log& log_;
  std::map<pid_t, std::size_t> running_;
  std::map<std::size_t, std::int64_t> at_start_;  // steps that were there before
  std::size_t over_ = 0;
  bool stopping_ = false;
  std::int64_t made_ = 0, kept_ = 0;  // steps: of this command, by processes that are over; before
  double began_, drawn_ = 0;
};

}  // namespace

int RunTrainings(ArmPlan& plan, telemetry::Log& log) {
  const int signal = Children(plan, log).Run();
  if (signal != 0) log.Info(plan.command + ": the same command goes on");
  return signal;
}

int ExitCodeOf(const ArmPlan& plan) {
  for (const Training& training : plan.trainings)
    if (training.exit_code != 0 && training.exit_code != 5) return training.exit_code;
  return 0;
}

}  // namespace ada::study
