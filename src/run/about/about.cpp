// The program's version, and the lists that the command line offers.
#include "run/about/about.h"

#include <algorithm>
#include <optional>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "config/recipes.h"
#include "data/catalog.h"
#include "data/dataset.h"
#include "error.h"
#include "graph/network/zoo.h"
#include "io/data_files.h"
#include "io/text.h"
#include "number/blocks/block_format.h"
#include "number/table_grid.h"
#include "number/tables/table_format.h"
#include "scaling/policies/presets.h"
#include "scaling/rules/accumulator.h"

// The build defines both; without them the file still compiles.
#ifndef ADA_VERSION
#define ADA_VERSION "unknown"
#endif
#ifndef ADA_COMMIT
#define ADA_COMMIT "unknown"
#endif

namespace ada::run {

std::vector<Version> Versions(const parallel::World& world) {
  const std::string cuda = backend::CudaVersions();
  std::vector<Version> all = {{"ada-train", ADA_VERSION},
                              {"commit", ADA_COMMIT},
#ifdef __clang__
                              {"compiler", "clang " __clang_version__},
#else
                              {"compiler", "g++ " __VERSION__},
#endif
                              {"backends", cuda == "not built in" ? "cpu" : "cpu, cuda"},
                              {"cpu library", backend::cpu::LibraryVersion()},
                              {"cuda", cuda}};
  const std::string mpi = parallel::LibraryName();
  if (!mpi.empty()) all.push_back({"mpi", mpi});
  if (!world.library().empty()) all.push_back({"processes", parallel::DescribeProcesses(world)});
  return all;
}

}  // namespace ada::run

namespace ada::run {

namespace {

// One line for a block-scaled format: its element, its blocks, and what scales it has.
std::string BlockLine(const NamedBlockFormat& named) {
  const BlockFormat& f = named.format;
  return std::string(named.name) + ": " + FormatName(f.element) + " in blocks of " +
         std::to_string(f.block) + " values with a scale in " + std::string(ToString(f.scale)) +
         (f.row_scaled     ? ", and a scale of each row"
          : f.tensor_scale ? ", and a scale of the tensor"
                           : "") +
         (f.rule == BlockRule::kHiFloat4 ? ", which eight and four values may double" : "") +
         ", rule " + std::string(ToString(f.rule)) + "; beyond the largest: it saturates";
}

// One line for a format whose values a table has.
std::string TableLine(const std::string& name) {
  const NumberFormat format = *TableNumberFormatNamed(name);
  const TableGrid& grid = TableGridAt(format.table);
  return name + ": " + std::to_string(TableFormatNamed(name)->bits) + " bits" +
         (name.starts_with("binary") ? " (IEEE P3109)" : "") + ", at most " +
         std::to_string(format.mantissa_bits) + " of mantissa" +
         (grid.is_signed ? "" : ", no sign") + ", values from " + NineDigits(grid.smallest) +
         " to " + NineDigits(grid.largest) + ", normal from " + NineDigits(grid.smallest_normal) +
         "; ties " + (grid.ties_away ? "away from zero" : "to even") + "; beyond the largest: " +
         (grid.has_inf         ? "inf"
          : grid.beyond_is_nan ? "NaN"
                               : "it saturates");
}

std::vector<std::string> ListFormats() {
  std::vector<std::string> lines;
  for (const NamedFormat& f : NamedFormats())
    lines.push_back(std::string(f.name) + ": " + std::to_string(f.format.exponent_bits) +
                    " exponent and " + std::to_string(f.format.mantissa_bits) +
                    " mantissa bits, bias " + std::to_string(f.format.bias) + ", largest " +
                    NineDigits(f.format.largest()) + ", smallest normal " +
                    NineDigits(f.format.smallest_normal()) + ", smallest subnormal " +
                    NineDigits(f.format.smallest_subnormal()) + "; beyond the largest: " +
                    (f.format.saturate || !f.format.has_nan ? "it saturates"
                     : f.format.has_inf                     ? "inf"
                                                            : "NaN"));
  for (const std::string& name : TableFormatNames()) lines.push_back(TableLine(name));
  for (const NamedBlockFormat& f : NamedBlockFormats()) lines.push_back(BlockLine(f));
  return lines;
}

// One line for an accumulator: its rule, the hardware, the source.
std::vector<std::string> ListAccumulators() {
  std::vector<std::string> lines;
  for (const scaling::NamedAccumulator& named : scaling::NamedAccumulators()) {
    const scaling::Accumulator& rule = named.rule;
    std::string line = std::string(named.name) + ": " + Counted(rule.group, "product") +
                       " at once, " +
                       (rule.cuts() ? Counted(rule.fraction_bits, "fraction bit") : "nothing cut") +
                       ", accumulator " + scaling::AccumulatorFormatText(rule.format) +
                       (rule.rounding == scaling::AccumulatorRounding::kTruncate ? " (truncated)"
                                                                                 : " (to nearest)");
    if (rule.promote > 0)
      line += ", added to fp32 every " + std::to_string(rule.promote) + " products";
    lines.push_back(line + "; " + std::string(named.hardware) + "; " + std::string(named.source));
  }
  return lines;
}

std::vector<std::string> ListRecipes() {
  std::vector<std::string> lines;
  for (const config::RecipeLine& recipe : config::Recipes())
    lines.push_back(recipe.name + ": " + recipe.text);
  return lines;
}

// "NAME: TEXT" or "NAME  TEXT" of a list's line.
std::pair<std::string, std::string> NameAndText(const std::string& line) {
  const std::size_t end = std::min(line.find(": "), line.find("  "));
  const std::size_t text = line.find_first_not_of(": ", end);
  return {line.substr(0, end), text == std::string::npos ? "" : line.substr(text)};
}

OrderedJson FormatJson(const NumberFormat& format) {
  return {{"kind", "plain"},
          {"exponent_bits", format.exponent_bits},
          {"mantissa_bits", format.mantissa_bits},
          {"bias", format.bias},
          {"largest", format.largest()},
          {"smallest_normal", format.smallest_normal()},
          {"smallest_subnormal", format.smallest_subnormal()}};
}

OrderedJson BlockFormatJson(const BlockFormat& format) {
  return {{"kind", "block"},
          {"element", FormatName(format.element)},
          {"block", format.block},
          {"scale", ToString(format.scale)},
          {"tensor_scale", format.tensor_scale},
          {"row_scaled", format.row_scaled},
          {"rule", ToString(format.rule)}};
}

// What the lines of formats say as numbers.
void AddFormatFields(const std::string& name, OrderedJson& entry) {
  for (const NamedFormat& f : NamedFormats())
    if (name == f.name) entry.update(FormatJson(f.format));
  if (const std::optional<NumberFormat> table = TableNumberFormatNamed(name)) {
    const TableGrid& grid = TableGridAt(table->table);
    entry.update({{"kind", "table"},
                  {"bits", TableFormatNamed(name)->bits},
                  {"signed", grid.is_signed},
                  {"has_inf", grid.has_inf},
                  {"largest", grid.largest},
                  {"smallest_normal", grid.smallest_normal},
                  {"smallest_subnormal", grid.smallest}});
  }
  for (const NamedBlockFormat& f : NamedBlockFormats())
    if (name == f.name) entry.update(BlockFormatJson(f.format));
}

}  // namespace

OrderedJson ListJson(const std::string& what) {
  OrderedJson json = CommandJson(what);
  json["entries"] = OrderedJson::array();
  for (const std::string& line : List(what)) {
    const auto [name, text] = NameAndText(line);
    OrderedJson entry = {{"name", name}, {"text", text}};
    if (what == "formats") AddFormatFields(name, entry);
    json["entries"].push_back(entry);
  }
  return json;
}

std::vector<std::string> List(const std::string& what) {
  if (what == "models") return graph::ListModels();
  if (what == "policies") return scaling::ListPolicies();
  if (what == "formats") return ListFormats();
  if (what == "recipes") return ListRecipes();
  if (what == "accumulators") return ListAccumulators();
  if (what == "datasets") return data::ListDatasets();
  throw InternalError("no list of " + what);
}

std::string DataSource(const config::DataConfig& data) {
  const data::DatasetFacts& facts = data::FactsOf(data.dataset);
  if (facts.origin == data::Origin::kSeed) return "made up, no files";
  if (facts.folder.empty()) return std::string(facts.name) + ", your own files in " + data.path;
  const std::string fetched = "ada-train fetch " + std::string(facts.name);
  const std::string system(facts.system_folder);
  return !system.empty() && IsThere(system) ? fetched + ", or " + system : fetched;
}

}  // namespace ada::run
