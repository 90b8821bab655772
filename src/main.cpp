// Runs the command line and turns errors into exit codes. Nothing else catches.
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>

#include "cli/commands.h"
#include "core/error.h"
#include "core/utf8.h"

namespace {

int Fail(int code, const std::string& message) {
  std::fprintf(stderr, "ada-train: %s\n", ada::VisibleLines(message).c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int code = ada::cli::Dispatch(argc, argv);
    if (!std::cout.flush()) throw ada::OutputError("standard output cannot be written");
    return code;
  } catch (const ada::InternalError& e) {
    return Fail(e.exit_code(), std::string("internal error: ") + e.what() + "; please report this");
  } catch (const ada::Error& e) {
    return Fail(e.exit_code(), e.what());
  } catch (const std::bad_alloc&) {
    return Fail(4, "out of memory; a smaller data.batch_size, or train.accumulate, helps");
  } catch (const std::exception& e) {
    return Fail(70, std::string("internal error: ") + e.what() + "; please report this");
  }
}
