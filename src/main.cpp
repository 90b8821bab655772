// Runs the command line. Errors that reach main become a message and an exit code.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "cli/command_line.h"
#include "error.h"
#include "io/shown_text.h"
#include "parallel/world.h"

namespace {

void PrintError(const std::string& message) {
  const std::string name =
      ada::Colored(ada::HasColor(STDERR_FILENO), ada::Color::kRed, "ada-train:");
  std::fprintf(stderr, "%s %s\n", name.c_str(), ada::VisibleLines(message).c_str());
}

// Prints the message; first ends the other processes, which would otherwise wait for this one.
int Fail(ada::parallel::World& world, int code, const std::string& message) {
  if (world.ranks() > 1) ada::parallel::EndAll(world, code, PrintError, message);
  PrintError(message);
  return code;
}

// Opens those of descriptors 0 to 2 that are closed, so that no file of the run gets such a number
// and receives what is printed. Standard output stays one that cannot be written.
void OccupyStandardStreams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    // open() returns the lowest free descriptor, which is fd.
    if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0) open("/", O_RDONLY);
  }
}

// A mapped data file whose disk failed, or that was cut short, raises a signal where it is read.
// The handler makes only system calls.
void ReportUnreadable(int /*signal*/) {
  constexpr char kText[] =
      "ada-train: a data file could not be read: its disk or server failed, or it was cut short "
      "while it was read\n";
  [[maybe_unused]] const ssize_t ignored = write(STDERR_FILENO, kText, sizeof kText - 1);
  _exit(4);
}

}  // namespace

int main(int argc, char** argv) {
  OccupyStandardStreams();
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond its limit is then an error with a message
  std::signal(SIGBUS, ReportUnreadable);
  ada::parallel::World world;
  try {
    world = ada::parallel::StartWorld();
    const int code = ada::cli::Dispatch(argc, argv, world);
    if (!std::cout.flush()) throw ada::OutputError("standard output cannot be written");
    return code;
  } catch (const ada::InternalError& e) {
    return Fail(world, e.exit_code(),
                std::string("internal error: ") + e.what() + "; please report this");
  } catch (const ada::Error& e) {
    return Fail(world, e.exit_code(), e.what());
  } catch (const std::bad_alloc&) {
    return Fail(world, 4, "out of memory; a smaller data.batch_size, or train.accumulate, helps");
  } catch (const std::exception& e) {
    return Fail(world, 70, std::string("internal error: ") + e.what() + "; please report this");
  }
}
