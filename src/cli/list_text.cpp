// The lists of this version as people read them: within 80 columns.
#include <ostream>
#include <string_view>

#include "cli/commands.h"
#include "core/text.h"
#include "study/text_table.h"

namespace ada::cli {
namespace {

constexpr std::size_t kIndent = 4;

void PrintIndented(std::string_view text, std::ostream& out) {
  study::PrintWrapped(std::string(kIndent, ' ') + std::string(text), kIndent + 2, out);
}

// "NAME: MEANING; SOURCE; CONSTANTS", a block for each; a meaning may have a `;` of its own.
void PrintPolicy(std::string_view line, std::ostream& out) {
  const std::size_t name = line.find(": "), constants = line.rfind("; "),
                    source = line.rfind("; ", constants - 1);
  out << line.substr(0, name) << '\n';
  PrintIndented(line.substr(name + 2, source - name - 2), out);
  PrintIndented("as in: " + std::string(line.substr(source + 2, constants - source - 2)), out);
  PrintIndented("defaults: " + std::string(line.substr(constants + 2)), out);
}

void PrintPolicies(const std::vector<std::string>& lines, std::ostream& out) {
  std::int64_t presets = 0, methods = 0;
  for (const std::string& line : lines) {
    PrintPolicy(line, out);
    presets += line.starts_with("dynamic, preset ");
    methods += line.starts_with("adaptive, method ");
  }
  const auto others = static_cast<std::int64_t>(lines.size()) - presets - methods;
  out << Counted(presets, "preset") << " of dynamic, " << Counted(methods, "method")
      << " of adaptive and " << others << " more\n"
      << "for one: --set scaling.policy=dynamic scaling.preset=NAME\n"
      << "to see one move: ada-train replay --preset NAME\n";
}

}  // namespace

void PrintForPeople(const std::string& what, const std::vector<std::string>& lines,
                    std::ostream& out) {
  if (what == "policies") return PrintPolicies(lines, out);
  for (const std::string& line : lines) study::PrintWrapped(line, kIndent, out);
}

}  // namespace ada::cli
