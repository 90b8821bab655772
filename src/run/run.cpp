// A training run, put together in the order in which problems should be found: configuration,
// device, data, output folder.
#include "run/run.h"

#include <algorithm>
#include <functional>
#include <future>
#include <system_error>

#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/run_in_parallel.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "run/evaluate/protect_data.h"
#include "run/facts/data_facts.h"
#include "run/memory_need.h"
#include "run/plan/plan_reports.h"
#include "run/session.h"
#include "step/specs.h"
#include "telemetry/run_folder.h"

namespace ada::run {
namespace {

telemetry::OnExisting OnExistingOf(const RunOptions& options) {
  return options.overwrite ? telemetry::OnExisting::kOverwrite
         : options.resume  ? telemetry::OnExisting::kResume
                           : telemetry::OnExisting::kRefuse;
}

// What --resume finds in the folder. done: the run is finished, and the configuration requests no
// more steps.
struct Continuation {
  std::optional<ResumePoint> from;
  bool done = false;
};
Continuation FindContinuation(telemetry::FolderState state, const config::Config& config,
                              std::int64_t total_steps, telemetry::Log& log) {
  Continuation c;
  const std::string& folder = config.output;
  c.from = FindResumePoint(folder + "/checkpoints", config, log);
  const bool finished = state == telemetry::FolderState::kFinished;
  c.done = finished && (!c.from || c.from->state.step >= total_steps);
  if (c.done)
    log.Info(
        folder +
        ": the run is finished, nothing to do; more train.epochs or train.max_steps extend it");
  else if (c.from)
    log.Info("resuming " + folder + " after step " + std::to_string(c.from->state.step));
  else
    log.Info(folder + ": no checkpoint to go on from, starting afresh");
  return c;
}

void WarnOfOtherBackend(const ResumePoint& from, const backend::Backend& backend,
                        telemetry::Log& log) {
  auto without_threads = [](const std::string& text) { return text.substr(0, text.rfind(',')); };
  if (without_threads(from.state.backend) != without_threads(backend.Describe()))
    log.Warning("the checkpoint was written on " + from.state.backend + ", this is " +
                backend.Describe() +
                ": results may differ in the last bits from a run that never stopped");
}

void WarnOfOtherData(const CheckpointState& state, const RunData& data, telemetry::Log& log) {
  if (!state.data_facts || !data.facts) return;
  const std::string changes = ChangesOfData(*state.data_facts, *data.facts, data.class_names);
  if (!changes.empty()) log.Warning(changes + "; the run goes on with it as it is now");
}

RunData ReadForTraining(const config::Config& config, const data::DatasetInfo& info) {
  RunData data = ReadData(config, info);
  data.facts = FactsOfFiles(data, info);
  return data;
}

// Images are read while the graph is made; errors in them are reported after that. A run that is
// resumed may have nothing left to do.
std::future<RunData> StartReading(const config::Config& config, const data::DatasetInfo& info,
                                  const RunOptions& options) {
  const std::launch when = options.resume ? std::launch::deferred : std::launch::async;
  try {
    return std::async(when, [&config, &info] { return ReadForTraining(config, info); });
  } catch (const std::system_error& error) {
    throw ThreadRefused("reads data", error);
  }
}

// Another number of processes gives other sums, which the user has to be told.
void CheckRanks(const config::Config& given, const ResumePoint& from, const step::Team& team) {
  const config::Config stored =
      config::LoadText(from.state.config, from.stem + ".json (config)", {}).config;
  const int before = std::max(1, stored.parallel.ranks), now = team.ranks();
  if (before == now || given.parallel.ranks == now) return;
  throw ConfigError("--resume: the run had " + std::to_string(before) +
                    (before == 1 ? " process" : " processes") + ", now it would have " +
                    std::to_string(now) +
                    ": go on with as many, or say --set parallel.ranks=" + std::to_string(now));
}

// The objects for the steps of one precision, where precision.schedule has several. A backend frees
// memory only when it is destroyed, so each has its own backend.
struct PrecisionPhase {
  ChosenBackend chosen;
  config::Config config;  // with the precision of these steps
  std::unique_ptr<scaling::Policy> policy;
  graph::GraphSpec spec;  // refers to the members before it
  std::unique_ptr<graph::Graph> graph;

  explicit PrecisionPhase(ChosenBackend backend) : chosen(std::move(backend)) {}
  PrecisionPhase(const PrecisionPhase&) = delete;

  // For `step`, with a policy that has made no decisions yet.
  void Plan(const config::Config& whole, std::int64_t step, const Shape& image,
            const step::Team& team) {
    config = whole;
    config.precision = config::PrecisionAt(whole.precision, step);
    policy = scaling::MakePolicy(config.scaling);
    spec = step::TrainGraph(config, image, *policy);
    spec.input.n = static_cast<int>(team.LargestShare(spec.input.n));
  }
  // DeviceError where it needs more memory than there is.
  void Build(MemoryNeed& need) {
    graph = graph::Graph::Build(spec, *chosen.backend);
    need.network = chosen.backend->allocated_bytes() + OptimizerBytes(config, *graph) +
                   AccumulatedBytes(config, *graph);
    need.checkpoint = CheckpointBytes(config, *graph);
    RefuseMemory(need, spec);
  }
};

// Makes the graphs of all switches ahead once, so that what they refuse is told before the first
// step.
void RefuseSwitches(const config::Config& config, const Shape& image, const step::Team& team,
                    const std::function<ChosenBackend()>& make_backend) {
  for (const config::PrecisionSwitchConfig& change : config.precision.schedule) {
    PrecisionPhase ahead(make_backend());
    ahead.Plan(config, change.from_step, image, team);
    ahead.graph = graph::Graph::Build(ahead.spec, *ahead.chosen.backend);
  }
}

// If several processes share the run, checks that they agree on what they are about to compute, and
// returns lines about them for the log; for one process returns none.
std::vector<std::string> CheckProcesses(step::Team& team, const PrecisionPhase& phase,
                                        const RunData& data,
                                        const step::DistributedGradients& gradients) {
  if (!gradients.are_parts()) return {};
  CheckConsistency(data, *phase.graph, *phase.chosen.backend, team);
  const int micro = phase.config.data.batch_size / phase.config.train.accumulate;
  return {parallel::DescribeProcesses(team.world()) + "; " + team.world().library(),
          std::to_string(team.LargestShare(micro)) + " of " + std::to_string(micro) +
              " images a process; gradients of " +
              HumanBytes(static_cast<std::uint64_t>(gradients.bytes())) + " in " +
              std::to_string(gradients.buckets()) + " buckets"};
}

}  // namespace

int Train(const config::Config& given, const RunOptions& options, telemetry::Log& log) {
  ProtectFoldersOfData(given);
  if (options.overwrite) ProtectFirstWeights(given);
  step::Team team(*options.world, given.parallel);
  CheckConfigConsistency(given, team);
  auto phase = std::make_unique<PrecisionPhase>(MakeBackend(given.device, team));
  const data::DatasetInfo info = InspectData(given);
  if (options.resume) RequireClassesOfRun(given, info);
  config::Config config = Completed(given, info);
  RequireTargets(config, info);
  step::CheckParts(config, info.train, team);
  step::CheckDecisions(config, team);
  config.parallel.ranks = team.ranks_to_keep();
  const Shape image{1, info.height, info.width, info.channels};
  phase->Plan(config, 1, image, team);
  MemoryNeed need = LeastNeed(config, info, phase->spec);
  need.has_own_memory = phase->chosen.has_own_memory;
  RefuseMemory(need, phase->spec);
  // Class weights of the loss are computed from the data, before the network is made.
  std::optional<RunData> read;
  ClassWeights weights;
  if (ComputesClassWeights(config)) {
    if (options.resume) weights.values = StoredClassWeights(config.output);
    if (weights.values.empty()) {
      read = ReadForTraining(config, info);
      weights = ComputeClassWeights(config, *read);
    }
    config.train.class_weights.values = weights.values;
    phase->Plan(config, 1, image, team);
  }
  std::future<RunData> reading;
  if (!read) reading = StartReading(config, info, options);
  RefuseSwitches(config, image, team, [&] { return MakeBackend(given.device, team); });
  phase->Build(need);

  // Whatever can still fail comes before an old run is deleted.
  const bool writes = team.writes();
  std::optional<telemetry::RunFolder> folder;
  if (writes && !options.overwrite) folder.emplace(config.output, OnExistingOf(options));
  const std::int64_t total = step::TotalSteps(config, step::StepsPerEpoch(config, info.train));
  Continuation continuation;
  if (options.resume) {
    continuation = FindContinuation(
        folder ? folder->state() : telemetry::InspectRunFolder(config.output), config, total, log);
    CheckContinuation(continuation.from ? continuation.from->state.step : -1, continuation.done,
                      team);
    if (continuation.from) CheckRanks(given, *continuation.from, team);
    if (continuation.done) return 0;
  }
  std::optional<ResumePoint>& from = continuation.from;
  const auto switch_to = [&](std::int64_t step) {
    phase.reset();
    phase = std::make_unique<PrecisionPhase>(MakeBackend(given.device, team));
    phase->Plan(config, step, image, team);
    phase->Build(need);
  };
  // A run that was killed during its last evaluation has no steps left.
  const std::int64_t next = from ? std::min(from->state.step + 1, total) : 1;
  if (next > config::LastStepAsAt(config.precision, 1)) switch_to(next);
  const std::string warning = MemoryWarning(need, phase->spec);
  const RunData data = read ? std::move(*read) : reading.get();

  const SignalWatch signals;
  std::optional<Session> session;
  const auto begin = [&](const std::optional<Elapsed>& before) {
    session.emplace(RunContext{config, data, log, signals, config.output, options.program,
                               options.progress, team},
                    SessionParts{phase->config, *phase->chosen.backend, *phase->graph,
                                 *phase->policy, phase->chosen.threads},
                    before, from);
  };
  begin(std::nullopt);
  const std::vector<std::string> together =
      CheckProcesses(team, *phase, data, session->distributed());
  if (writes) {
    // The state to resume from is in memory: only now may anything of an old run be changed.
    if (options.overwrite) folder.emplace(config.output, OnExistingOf(options));
    log.OpenFile(folder->path() + "/log.txt", from.has_value());
    log.Info(config.name + ": " + phase->chosen.reason);
    for (const std::string& line : together) log.Info(line);
    if (!warning.empty()) log.Warning(warning);
    if (!data.note.empty()) log.Info(data.note);
    for (const std::string& line : data.warnings) log.Warning(line);
    if (!weights.text.empty()) log.Info(weights.text);
    for (const std::string& line : weights.warnings) log.Warning(line);
    for (const std::string& line : NetworkWarnings(config, *phase->graph, info.train, total))
      log.Warning(line);
    if (from) {
      WarnOfOtherBackend(*from, *phase->chosen.backend, log);
      WarnOfOtherData(from->state, data, log);
    }
    folder->MarkUnfinished();
    WriteFileAtomically(folder->path() + "/config.yaml", config::ToYaml(config));
    session->OpenLogs();
    session->NoteLeftOut(weights.left_out);
  }
  for (;;) {
    const std::optional<int> code = session->Run();
    if (code) return *code;
    const std::int64_t step = session->steps();
    const Elapsed elapsed = session->elapsed();
    session.reset();  // it uses the phase
    const std::string stem = CheckpointStem(config.output + "/checkpoints", step);
    from = ResumePoint{stem, ReadCheckpointState(stem)};
    switch_to(step + 1);
    begin(elapsed);
    if (writes) session->OpenLogs();
  }
}

}  // namespace ada::run
