// --dry-run: everything a run would make, made but not run: no memory of the network is touched.
#include <algorithm>
#include <ostream>
#include <set>
#include <sstream>
#include <utility>

#include "config/load.h"
#include "error.h"
#include "graph/network/layer_table.h"
#include "graph/network/parameters.h"
#include "io/data_files.h"
#include "io/json_output.h"
#include "io/tensor_names.h"
#include "io/text.h"
#include "record/probe.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/evaluator.h"
#include "run/evaluate/weights.h"
#include "run/memory_need.h"
#include "run/plan/plan_reports.h"
#include "step/batches/batches.h"
#include "step/batches/resident_batches.h"
#include "step/specs.h"

namespace ada::run {
namespace {

// What decides an alpha: "adaptive: fixed 8".
std::string RuleWord(const scaling::LayerScaler& scaler, const scaling::Policy& policy) {
  const scaling::LayerMethod method = scaler.rule.method;
  std::string word(policy.name());
  if (method == scaling::LayerMethod::kPass) return word;
  if (method == scaling::LayerMethod::kState)
    return policy.name() == "adaptive"
               ? word + ": total_scale " + ShortestText(scaler.rule.fixed_scale)
               : word;
  word += std::string(": ") + scaling::MethodName(method);
  if (method == scaling::LayerMethod::kFixed) word += " " + ShortestText(scaler.rule.fixed_scale);
  return word;
}

// What decides alpha in a layer, for the table; of attention each gradient within it that has an
// alpha, together with those that are decided alike: "adaptive: exact_range (dv, ds, dq, dk)".
std::string PolicyWord(const std::string& layer, const graph::Graph& graph,
                       const scaling::Policy& policy) {
  std::vector<std::pair<std::string, std::string>> words;  // and the gradients
  for (const graph::ScalePoint& point : graph.scales()) {
    if (point.scaler == nullptr) continue;
    if (point.layer == layer) return RuleWord(*point.scaler, policy);
    const auto [of, tensor] = PartsOfDecision(point.layer);
    if (tensor.empty() || of != layer) continue;
    if (point.scaler->rule.method == scaling::LayerMethod::kPass) continue;  // hands S on
    const std::string word = RuleWord(*point.scaler, policy);
    const auto same = std::find_if(words.begin(), words.end(),
                                   [&](const auto& other) { return other.first == word; });
    if (same == words.end())
      words.emplace_back(word, tensor);
    else
      same->second.append(", ").append(tensor);
  }
  std::string text;
  for (const auto& [word, gradients] : words)
    text += (text.empty() ? "" : ", ") + word + " (" + gradients + ")";
  return text.empty() ? "-" : text;
}

// The accumulators of a layer's products: one name where all have the same.
std::string SumsWord(const std::string& layer, const graph::Graph& graph) {
  std::string all, text;
  bool same = true;
  for (const graph::SumPoint& point : graph.sums()) {
    if (point.layer != layer) continue;
    const std::string rule = scaling::AccumulatorText(point.rule);
    same = same && (all.empty() || all == rule);
    all = rule;
    text += (text.empty() ? std::string() : ", ") + NameOf(point.product) + " " + rule;
  }
  return same ? all : text;
}

// The layers between the images, which are rounded as they come, and the loss, whose dx the logs
// call loss.dx.
std::vector<std::string> TableLines(const graph::GraphSpec& spec, const graph::Graph& graph,
                                    const scaling::Policy& policy) {
  graph::LayerRow input, loss;
  input.name = "input", input.output = spec.input, input.output.n = 1;
  loss.name = "loss", loss.output = graph.layers().back().output;
  std::vector<graph::LayerRow> rows = {input};
  rows.insert(rows.end(), graph.layers().begin(), graph.layers().end());
  rows.push_back(loss);
  std::vector<graph::LayerNotes> notes(rows.size());
  notes.front().formats = {{"y", graph.input_format()}};
  notes.front().policy = "-";
  for (std::size_t i = 1; i < rows.size(); ++i) {
    notes[i].sums = SumsWord(rows[i].name, graph);
    notes[i].policy = PolicyWord(rows[i].name, graph, policy);
    for (const graph::RoundingPoint& point : graph.roundings())
      if (point.layer == rows[i].name)
        notes[i].formats.emplace_back(point.tensor, point.named_format());
  }
  return graph::LayerTable(rows, notes);
}

// Whether a device may keep the images at all.
// Where the files were not opened, the changes that the configuration asks for decide.
bool MayReside(const config::Config& config, const data::DatasetInfo& info) {
  const data::LoaderSpec spec = TrainLoader(config, {});
  return info.found ? step::ResidentBatches::WhyNot(info.found->train, spec).empty()
                    : !spec.changes.any() && !spec.changes.crops();
}

// The bytes of images that the device will keep, each split where it fits.
std::uint64_t ResidentBytes(const config::Config& config, const data::DatasetInfo& info,
                            const ChosenBackend& chosen) {
  if (!chosen.has_own_memory || !MayReside(config, info)) return 0;
  backend::ImageSourceSpec source;
  source.image = {1, info.height, info.width, info.channels};
  std::uint64_t bytes = 0;
  const bool trains = step::ResidenceOf(config) == step::Residence::kAnywhere;
  for (const std::int64_t images : {trains ? info.train : 0, info.validation, info.test}) {
    source.images = images;
    if (images > 0) bytes += chosen.backend->ImageSourceBytes(source);
  }
  return bytes;
}

// "3 files, 13840 bytes": what the sequences of all splits are made of.
std::string FilesText(const data::Splits& found) {
  std::set<std::string> files;
  std::uint64_t bytes = 0;
  for (const data::Dataset* split : {&found.train, &found.validation, &found.test})
    if (split->tokens)
      for (const std::string& file : split->tokens->files())
        if (files.insert(file).second) bytes += BytesOfFile(file);
  return Counted(static_cast<std::int64_t>(files.size()), "file") + ", " + std::to_string(bytes) +
         " bytes";
}

// Notes about the files of a user's own data set.
std::string NotesOfFiles(const config::Config& config, const data::DatasetInfo& info) {
  if (!info.found) return "";
  std::string notes = info.found->train.tokens ? "tokens    " : "classes   ";
  notes += std::to_string(info.classes) + (info.found->train.tokens ? " different ones" : "");
  if (!info.found->class_names.empty()) notes += ": " + FirstNames(info.found->class_names, 10);
  if (info.found->train.tokens) notes += "\nfiles     " + FilesText(*info.found);
  notes += "\nworkers   " + std::to_string(EvaluationLoader(config, {}).workers) + '\n';
  if (!info.found->note.empty()) notes += "note      " + info.found->note + '\n';
  const data::Splits& found = *info.found;
  std::vector<std::string> lines = found.warnings;
  for (std::string& line :
       WarningsOfFiles(config, found.train, found.validation, found.test, found.class_names))
    lines.push_back(std::move(line));
  for (std::string& line : LinesOfLeftOut(found.train, found.validation, found.test))
    lines.push_back(std::move(line));
  for (const std::string& line : lines) notes += "warning   " + line + '\n';
  return notes;
}

// The numbers of samples to train and evaluate on.
std::string SamplesText(const config::Config& config, const data::DatasetInfo& info) {
  const std::string train = std::to_string(info.train) + " training";
  const std::string test = " and " + std::to_string(info.test) + " test ";
  const std::string validation =
      info.validation > 0 ? ", " + std::to_string(info.validation) + " validation" : "";
  if (config.task != Task::kLanguage)
    return train + validation + test + "images of " +
           ToString(Shape{1, info.height, info.width, info.channels});
  return train + validation + test + "sequences of " + Counted(info.height, "token");
}

// Faults that nothing else tells of when only headers are read, one line a kind.
constexpr data::FaultKind kPrintedFaults[] = {data::FaultKind::kGray, data::FaultKind::kPalette,
                                              data::FaultKind::kEmptyClass};

// Writes to `out` what the headers of all files show. Returns the first file that would end the
// run; empty: there is none. `known`: the opened data set; null: it could not be opened.
std::string PrintHeaderFaults(const config::Config& config, const data::Splits* known,
                              std::ostream& out) {
  if (!data::FactsOf(config.data.dataset).decodes()) return "";
  telemetry::Log log;
  const CheckedFiles checked =
      CheckFiles(config, /*decodes=*/false, /*progress=*/false, log, known);
  std::vector<const data::FileFault*> ends;
  for (const data::FileFault& fault : checked.faults)
    if (fault.ends_run) ends.push_back(&fault);
  for (const data::FileFault* fault : ends) out << "error     " << FaultText(*fault) << '\n';
  for (const data::FaultKind kind : kPrintedFaults) {
    std::int64_t count = 0;
    const data::FileFault* first = nullptr;
    for (const data::FileFault& fault : checked.faults) {
      if (fault.kind != kind || fault.ends_run) continue;
      if (count++ == 0) first = &fault;
    }
    if (count > 0)
      out << "note      " << FaultText(*first)
          << (count > 1 ? " (and " + std::to_string(count - 1) + " more)" : "") << '\n';
  }
  if (ends.empty()) return "";
  return Counted(static_cast<std::int64_t>(ends.size()), "file") +
         " of the data set cannot be used, as listed above; the first: " + FaultText(*ends.front());
}

// Where the data set is refused, after all files that are known to be unusable were named.
data::DatasetInfo InspectOrPrintFaults(const config::Config& config, std::ostream& out) {
  try {
    return InspectData(config);
  } catch (const DataError&) {
    PrintHeaderFaults(config, nullptr, out);
    throw;
  }
}

// Tells the formats from each switch of the precision on; returns the bytes of the largest graph.
std::uint64_t PrintSwitches(const config::Config& whole, const Shape& image, std::ostream& out) {
  std::uint64_t largest = 0;
  for (const config::PrecisionSwitchConfig& change : whole.precision.schedule) {
    config::Config config = whole;
    config.precision = config::PrecisionAt(whole.precision, change.from_step);
    const ChosenBackend chosen = MakeBackend(config.device);
    const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
    const graph::GraphSpec spec = step::TrainGraph(config, image, *policy);
    const auto graph = graph::Graph::Build(spec, *chosen.backend);
    out << "from step " << change.from_step << " on: " << config::TextOf(change) << '\n';
    for (const std::string& line : TableLines(spec, *graph, *policy)) out << line << '\n';
    largest = std::max<std::uint64_t>(largest, chosen.backend->allocated_bytes());
  }
  return largest;
}

// What the optimizer's state would take where it is stored in the bits that it is kept in; a line,
// or nothing where it is fp32.
std::string StateText(const config::Config& config, const graph::Graph& graph) {
  const config::PrecisionConfig& p = config.precision;
  const bool compensates = p.masters.compensation != backend::UpdateRule::Compensation::kNone;
  if (p.optimizer_state.plain() && !compensates) return "";
  const backend::UpdateRule rule = step::UpdateRuleOf(config);
  std::uint64_t bytes = 0;
  for (const optim::OptimizedParameter& trained :
       step::OptimizedParameters(config.optimizer, graph))
    bytes += optim::StateBytes(rule, trained.dims, trained.other);
  return "state     " + HumanBytes(bytes) + " in its own formats, with scales; " +
         HumanBytes(OptimizerBytes(config, graph)) + " here, where fp32 holds it\n";
}

}  // namespace

namespace {

// The lines of the text that begin with this word, without it.
std::vector<std::string> LinesThatBegin(const std::string& text, const std::string& word) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);)
    if (line.starts_with(word + " "))
      lines.push_back(line.substr(std::min(line.find_first_not_of(' ', word.size()), line.size())));
  return lines;
}

OrderedJson LayersJson(const graph::Graph& graph, const scaling::Policy& policy) {
  OrderedJson layers = OrderedJson::array();
  for (const graph::LayerRow& row : graph.layers()) {
    OrderedJson formats = OrderedJson::object();
    for (const graph::RoundingPoint& point : graph.roundings())
      if (point.layer == row.name) formats[point.tensor] = FormatName(point.named_format());
    layers.push_back({{"name", row.name},
                      {"kind", row.kind},
                      {"output", {row.output.h, row.output.w, row.output.c}},
                      {"parameters", row.parameters},
                      {"mflop", row.mflop},
                      {"formats", formats},
                      {"policy", PolicyWord(row.name, graph, policy)}});
  }
  return layers;
}

OrderedJson MemoryJson(const MemoryNeed& need) {
  return {{"bytes_on_host", need.OnHost()},
          {"images", need.images},
          {"batches", need.batches},
          {"network_and_optimizer", need.network},
          {"resident_images", need.resident_images},
          {"checkpoint", need.checkpoint},
          {"network_on_device", need.has_own_memory}};
}

// What a dry run found, without its text.
struct DryFacts {
  OrderedJson layers;
  MemoryNeed need;
  data::DatasetInfo info;
  std::int64_t per_epoch = 0, steps = 0;
  double step_seconds = NAN;  // measured
};

// Makes what DryRun prints, line by line, and the facts as they are known.
void DryRunText(const config::Config& given, bool measure, std::ostream& out, DryFacts& facts);

}  // namespace

// What the text warns of is taken from it, so that both say the same.
void DryRun(const config::Config& config, bool measure, std::ostream& out, bool json) {
  DryFacts facts;
  if (!json) return DryRunText(config, measure, out, facts);
  std::ostringstream text;
  std::string refusal;
  try {
    DryRunText(config, measure, text, facts);
  } catch (const DataError&) {
    for (const std::string& line : LinesThatBegin(text.str(), "error")) refusal += line + "\n";
    if (refusal.empty()) throw;
    throw DataError(refusal.substr(0, refusal.size() - 1));
  }
  OrderedJson page = CommandJson("train --dry-run");
  page["name"] = config.name;
  page["layers"] = facts.layers;
  const auto lines = [&](const char* word) { return LinesThatBegin(text.str(), word); };
  page["device"] = lines("device").empty() ? "" : lines("device").front();
  page["data"] = {{"dataset", config.data.dataset},
                  {"train", facts.info.train},
                  {"validation", facts.info.validation},
                  {"test", facts.info.test},
                  {"sample", {facts.info.height, facts.info.width, facts.info.channels}}};
  page["steps_per_epoch"] = facts.per_epoch;
  page["steps"] = facts.steps;
  page["memory"] = MemoryJson(facts.need);
  page["step_seconds"] = facts.step_seconds;
  page["warnings"] = lines("warning");
  page["notes"] = lines("note");
  PrintJson(page, out);
}

namespace {

// Parts are made as in a run, so that they allocate what a run would; of the precisions of a
// schedule the one with the largest graph counts. Headers of files are read last: a file that would
// end the run is an error only when everything else has been told.
void DryRunText(const config::Config& given, bool measure, std::ostream& out, DryFacts& facts) {
  const ChosenBackend chosen = MakeBackend(given.device);
  const data::DatasetInfo info = InspectOrPrintFaults(given, out);
  const config::Config completed = Completed(given, info);
  config::Config config = completed;
  config.precision = config::PrecisionAt(completed.precision, 1);
  const Shape image{1, info.height, info.width, info.channels};
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  const graph::GraphSpec spec = step::TrainGraph(config, image, *policy);
  // The graph's own bookkeeping grows with the network too, though slowly. A network that needs
  // this many times the available memory is refused before its graph is made.
  constexpr double kFarTooMuch = 32;
  MemoryNeed need = LeastNeed(config, info, spec);
  if (!chosen.has_own_memory) RefuseMemory(need, spec, kFarTooMuch);
  const auto graph = graph::Graph::Build(spec, *chosen.backend);
  const std::uint64_t of_graph = chosen.backend->allocated_bytes();
  optim::Optimizer optimizer(*chosen.backend, step::UpdateRuleOf(config),
                             step::OptimizedParameters(config.optimizer, *graph),
                             config.train.clip_norm);
  const Evaluator evaluator(config, image, *chosen.backend, graph.get());
  std::optional<WeightAverage> average;
  if (KeepsAverage(config)) average.emplace(config, image, *chosen.backend, *graph);
  std::optional<record::Probe> probe;
  if (config.log.probe_every > 0) probe.emplace(config, image, *graph, *chosen.backend);
  std::optional<graph::WeightsCover> weights;
  const config::InitConfig& init = config.model.init;
  if (!init.weights.empty())
    weights = graph::CoverOf(graph::OpenWeights(init), init, graph->parameters());

  for (const std::string& line : TableLines(spec, *graph, *policy)) out << line << '\n';
  const std::uint64_t of_largest = std::max(of_graph, PrintSwitches(completed, image, out));
  need.has_own_memory = chosen.has_own_memory;
  need.resident_images = ResidentBytes(config, info, chosen);
  need.network =
      chosen.backend->allocated_bytes() + of_largest - of_graph + AccumulatedBytes(config, *graph);
  need.checkpoint = CheckpointBytes(config, *graph);
  const std::int64_t per_epoch = step::StepsPerEpoch(config, info.train);
  out << "device    " << chosen.reason << '\n'
      << "data      " << config.data.dataset << ": " << SamplesText(config, info) << '\n'
      << NotesOfFiles(config, info) << "steps     " << per_epoch << " an epoch, "
      << step::TotalSteps(config, per_epoch) << " in all\n"
      << "memory    " << ToString(need) << '\n'
      << StateText(config, *graph);
  if (weights) out << "weights   " << weights->LoadedText() << '\n';
  RefuseMemory(need, spec);
  facts.layers = LayersJson(*graph, *policy);
  facts.need = need;
  facts.info = info;
  facts.per_epoch = per_epoch;
  facts.steps = step::TotalSteps(config, per_epoch);
  if (measure) {
    facts.step_seconds = MeasureStep(config, *graph, optimizer, *policy, image, *chosen.backend);
    out << "measured  " << MeasuredText(facts.step_seconds, config, image, per_epoch) << std::endl;
  }
  for (const std::string& line :
       NetworkWarnings(completed, *graph, info.train, step::TotalSteps(config, per_epoch)))
    out << "warning   " << line << '\n';
  if (weights && !weights->missing.empty()) out << "warning   " << weights->MissingText() << '\n';
  if (weights && !weights->ignored.empty()) out << "note      " << weights->IgnoredText() << '\n';
  if (weights && !weights->skipped.empty()) out << "note      " << weights->SkippedText() << '\n';
  const std::string warning = MemoryWarning(need, spec);
  if (!warning.empty()) out << "warning   " << warning << '\n';
  RequireTargets(completed, info);
  const std::string unusable = PrintHeaderFaults(given, info.found.get(), out);
  if (!unusable.empty()) throw DataError(unusable);
}

}  // namespace

}  // namespace ada::run
