#include "cli/config_options.h"

#include <charconv>
#include <cstdint>
#include <system_error>

#include "cli/commands.h"
#include "core/error.h"

namespace ada::cli {
namespace {

using Value = ShortOption::Value;

// Whether all of `value` is a T.
template <class T>
bool IsA(const std::string& value) {
  T read;
  const char* end = value.data() + value.size();
  const auto [stopped, error] = std::from_chars(value.data(), end, read);
  return stopped == end && error != std::errc::invalid_argument;
}

// `value` as it stands behind the key. Its range is the key's affair.
std::string YamlOf(const ShortOption& option, const std::string& value) {
  const std::string given = std::string(option.name) + " " + value;
  if (option.value == Value::kText) return config::YamlText(value);
  if (option.value == Value::kWhole && !IsA<std::int64_t>(value))
    throw ConfigError(given + ": expected a whole number");
  if (option.value == Value::kNumber && !IsA<double>(value))
    throw ConfigError(given + ": expected a number");
  return value;
}

void AddShort(CLI::App& app, ConfigArguments& a, const ShortOption& option) {
  app.add_option_function<std::string>(
         option.name,
         [&a, option](const std::string& value) {
           a.set.push_back(option.key + ("=" + YamlOf(option, value)));
         },
         option.what + (std::string(" (") + option.key + ")"))
      ->type_name(option.type)
      ->trigger_on_parse();
}

}  // namespace

void AddOverrides(CLI::App& app, ConfigArguments& a, const std::vector<ShortOption>& shorts) {
  AddSet(app, a.set, "--set scaling.policy=fixed --set scaling.scale=1024");
  for (const ShortOption& option : shorts) AddShort(app, a, option);
}

std::vector<ShortOption> MachineOptions() {
  return {{"--device", "device.kind", "DEVICE", "auto, cpu, cuda or cuda:1", Value::kText},
          {"--threads", "device.threads", "N", "threads of the CPU backend; 0: one per core",
           Value::kWhole}};
}

std::vector<ShortOption> DataOptions() {
  return {{"--data", "data.path", "DIR", "the folder of the data set", Value::kText},
          {"--format", "precision.format", "FORMAT", "fp16, bf16 ... or '{exponent: 4, ...}'",
           Value::kYaml}};
}

}  // namespace ada::cli
