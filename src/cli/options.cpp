// Options that several commands have, their values, and operands that --set has swallowed.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <system_error>

#include "cli/command_line.h"
#include "error.h"
#include "io/shown_text.h"
#include "io/text.h"

namespace ada::cli {
void AddColor(CLI::App& app) {
  app.add_option_function<std::string>(
         "--color",
         [](const std::string& when) {
           if (when == "auto") return SetColorChoice(ColorChoice::kAuto);
           if (when == "always") return SetColorChoice(ColorChoice::kAlways);
           if (when == "never") return SetColorChoice(ColorChoice::kNever);
           throw ConfigError("--color " + when + ": expected auto, always or never");
         },
         "auto (on a terminal, unless NO_COLOR is set), always or never")
      ->type_name("WHEN")
      ->trigger_on_parse();
}

// Every command has --color, so that it may stand before or after the command.
CLI::App* Add(CLI::App& app, const char* name, const char* what, const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer("Examples:\n" + examples);
  AddColor(*command);
  return command;
}

void AddSet(CLI::App& app, std::vector<std::string>& set, const char* example) {
  // Handled during parsing, because the order relative to short options for keys matters.
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [&set](const std::vector<std::string>& items) {
           set.insert(set.end(), items.begin(), items.end());
         },
         std::string("override a key: ") + example)
      ->type_name("KEY=VALUE")
      // Several pairs may follow one --set; that is why it also takes an operand that comes after
      // them.
      ->expected(1, -1)
      ->trigger_on_parse();
}

void AddFormat(CLI::App& app, std::string& format, const std::string& what) {
  app.add_option("--format", format, what + "; a name or '{exponent: 4, mantissa: 3}'")
      ->type_name("FORMAT");
}

void AddAccumulate(CLI::App& app, std::vector<std::string>& rules, const std::string& what) {
  app.add_option("--accumulate", rules,
                 what +
                     " accumulator\n(hopper_fp8, a map, {forward: .., dx: .., dw: ..}), of "
                     "operands in --format")
      ->type_name("RULE")
      ->allow_extra_args(false);
}

std::vector<config::AccumulatesConfig> ReadAccumulators(const std::vector<std::string>& rules) {
  std::vector<config::AccumulatesConfig> accumulators;
  for (const std::string& rule : rules) {
    const auto& asked = accumulators.emplace_back(
        config::LoadPrecision({{"precision.accumulate", rule}}).config.precision.accumulate);
    if (std::none_of(asked.by_matmul.begin(), asked.by_matmul.end(),
                     [](const auto& product) { return product && product->rule; }))
      throw ConfigError("--accumulate " + rule +
                        ": sums in fp32 are what others are judged by; "
                        "expected an accumulator (`ada-train accumulators`)");
  }
  return accumulators;
}

config::Overrides OverridesOf(const std::vector<std::string>& set) {
  config::Overrides overrides;
  for (const std::string& item : set) {
    const std::size_t equals = item.find('=');
    // The value may hold equal signs, and may be empty: the first one divides.
    if (equals == std::string::npos || equals == 0)
      throw ConfigError("--set " + item +
                        ": expected KEY=VALUE, for example --set scaling.scale=1024");
    overrides.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return overrides;
}

void TakeOperand(std::string& operand, std::vector<std::string>& set) {
  const auto found = std::find_if(set.begin(), set.end(), [](const std::string& item) {
    return item.find('=') == std::string::npos;
  });
  if (!operand.empty() || found == set.end()) return;
  operand = *found;
  set.erase(found);
}

void RequireOperand(std::string& operand, std::vector<std::string>& set, const std::string& what,
                    const std::string& command) {
  TakeOperand(operand, set);
  if (operand.empty())
    throw ConfigError(what + " is missing; `ada-train " + command + " --help` shows examples");
}

double Checked(double value, double low, double high, const char* option, const char* expected) {
  // NaN fails both comparisons and is refused.
  if (value >= low && value <= high) return value;
  throw ConfigError(std::string(option) + " " + ShortestText(value) + ": expected " + expected);
}

double ShareOf(const std::string& option, const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string digits = text.substr(0, text.size() - (percent ? 1 : 0));
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || !std::isfinite(number) || number <= 0)
    throw ConfigError(option + " " + text +
                      ": expected a share above 0, for example 0.1% or 0.001");
  return percent ? number / 100 : number;
}

std::vector<std::string> WholeFormats(const std::vector<std::string>& pieces) {
  std::vector<std::string> formats;
  std::ptrdiff_t open = 0;
  for (const std::string& piece : pieces) {
    // A comma within braces was cut too: pieces are joined again until the braces are closed.
    if (open > 0)
      formats.back() += "," + piece;
    else
      formats.push_back(piece);
    open +=
        std::count(piece.begin(), piece.end(), '{') - std::count(piece.begin(), piece.end(), '}');
  }
  return formats;
}

}  // namespace ada::cli
