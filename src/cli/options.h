// What the commands' declarations share: options that several have, and what becomes of their
// texts.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/load.h"

namespace ada::cli {

// A command whose help ends with `examples`: two lines, "  ada-train NAME ...".
CLI::App* Add(CLI::App& app, const char* name, const char* what, const std::string& examples);

// `--set KEY=VALUE ...` into `set`, `--format FORMAT` into `format`; both outlive the parsing.
void AddSet(CLI::App& app, std::vector<std::string>& set, const char* example);
void AddFormat(CLI::App& app, std::string& format, const std::string& what);

// The overrides of `--set`, in its order. Throws ConfigError for what is no KEY=VALUE.
config::Overrides OverridesOf(const std::vector<std::string>& set);

// --set takes all that follows it: where `operand` is empty, it becomes the first of `set` that is
// no KEY=VALUE, which goes from there. Throws ConfigError naming `what` where there is none.
void RequireOperand(std::string& operand, std::vector<std::string>& set, const std::string& what,
                    const std::string& command);

// `value` of `option` unless it lies outside low..high or is no number: then ConfigError saying
// what was `expected`.
double Checked(double value, double low, double high, const char* option, const char* expected);

}  // namespace ada::cli
