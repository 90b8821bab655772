// `ada-train watch`: a live table of the layers of a run that is going on (or has ended), from its
// files alone: it works beside the run, over ssh, on another machine that sees the folder.
#pragma once
#include <string>

namespace ada::study {

struct WatchOptions {
  std::string folder;
  double interval = 1;  // seconds between looks
  bool once = false;    // one look, then the end
};

// Draws on standard output: a table that is redrawn in place on a terminal, plain lines (one block
// a logged step) elsewhere. Ends when the run does; SIGINT ends it too. Returns the exit code.
// Throws DataError where the folder holds no run.
int Watch(const WatchOptions& options);

}  // namespace ada::study
