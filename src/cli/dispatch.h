// From the program's arguments to the command that they name.
#pragma once

namespace ada::cli {

// Parses and runs. Returns the exit code: 0, that of the command, or 2 where the arguments cannot
// be parsed (said on stderr). Throws what the command throws.
int Dispatch(int argc, char** argv);

}  // namespace ada::cli
