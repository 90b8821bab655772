// watch: the loop of looking, drawing and waiting, on a terminal or for a pipe. It only reads files
// and never holds the run's folder, so it cannot disturb the run.
#include <unistd.h>

#include <csignal>
#include <vector>

#include "io/shown_text.h"
#include "study/commands.h"
#include "study/run_files.h"
#include "study/watch/watch_view.h"
namespace ada::study {
namespace {

constexpr std::size_t kPlainWidth = 100;

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// A run that is watched: its state after each look, and whether it has ended.
class WatchedRun {
 public:
  explicit WatchedRun(const std::string& folder) : feed_(folder) { state_.folder = folder; }

  const WatchState& state() const { return state_; }
  bool ended() const { return state_.status != "running"; }

  // `logged` as in WatchFeed. Returns whether there is something new to see.
  bool Poll(const std::function<void()>& logged = {}) {
    // The status first: what the run wrote before it ended is read then.
    const std::string status = RunState(state_.folder);
    const std::string before = state_.status;
    const bool changed = feed_.Poll(state_, logged);
    state_.status = status;
    return changed || status != before;
  }

 private:
  WatchFeed feed_;
  WatchState state_;
};

// Every layer, below each other.
std::string WholeTable(const WatchState& state) {
  const std::size_t width = IsScreen() ? SizeOfScreen().columns : kPlainWidth;
  // A height of 0 means all layers.
  return Joined(DrawWatch(
      state,
      {.width = width, .height = 0, .utf8 = LocaleIsUtf8(), .color = HasColor(STDOUT_FILENO)}));
}

// Blocks of lines: how things stand, then one a logged step, then the end.
int WatchPlainly(WatchedRun& run, double interval, const Signals& signals) {
  run.Poll();
  WriteOut(WholeTable(run.state()));
  while (!run.ended()) {
    const int signal = signals.Wait(interval);
    if (signal == SIGINT || signal == SIGTERM) return 128 + signal;
    // SIGTSTP is blocked and only read; SIGSTOP cannot be, so it does what Ctrl-Z asks for.
    if (signal == SIGTSTP) raise(SIGSTOP);
    run.Poll([&] { WriteOut("\n" + WholeTable(run.state())); });
    // The last block has the status with which the run ended.
    if (run.ended()) WriteOut("\n" + WholeTable(run.state()));
  }
  return 0;
}

void DrawOn(Screen& screen, const WatchState& state) {
  const ScreenSize size = SizeOfScreen();
  screen.Draw(DrawWatch(state, {.width = size.columns,
                                .height = size.lines,
                                .utf8 = LocaleIsUtf8(),
                                .color = HasColor(STDOUT_FILENO)}));
}

// The table in place; returns the signal that ended it, 0: the run has ended, or `q` was typed.
int WatchOnScreen(WatchedRun& run, double interval, const Signals& signals) {
  Screen screen;
  KeyInput keys;
  run.Poll();
  DrawOn(screen, run.state());
  while (!run.ended()) {
    const int signal = signals.Wait(interval, keys.taken());
    if (signal == Signals::kQuit) return 0;
    if (signal == SIGINT || signal == SIGTERM) return signal;
    if (signal == SIGTSTP) {
      // The shell gets its own screen and keys back while the program is stopped.
      screen.Leave();
      keys.GiveBack();
      raise(SIGSTOP);
      keys.Take();
      screen.Enter();
    }
    if (run.Poll() || signal != 0) DrawOn(screen, run.state());
  }
  return 0;
}

}  // namespace

int Watch(const WatchOptions& options) {
  RequireRun(options.folder);
  WatchedRun run(options.folder);
  if (options.once) {
    run.Poll();
    WriteOut(WholeTable(run.state()));
    return 0;
  }
  const Signals signals;
  if (!IsScreen()) return WatchPlainly(run, options.interval, signals);
  const int signal = WatchOnScreen(run, options.interval, signals);
  WriteOut(WholeTable(run.state()));  // stays on the ordinary screen
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace ada::study
