// What a session reports: timing rows, progress, the backend's diagnostics, the summary.
#include <algorithm>
#include <utility>

#include "config/derived.h"
#include "config/load.h"
#include "graph/network/precision.h"
#include "io/text.h"
#include "run/about/about.h"
#include "run/assemble/assemble.h"
#include "run/session.h"

namespace ada::run {
namespace {

// Whether an operand of some forward product, but for weights, has a per-tensor scale that is found
// in the very batch, so that what an image gives depends on the others.
bool IsScaledByBatch(const config::PrecisionConfig& config, const graph::Graph& graph) {
  const graph::Precision precision =
      graph::ResolvePrecision(config, /*policy_owns_gradients=*/false);
  if (!precision.operands_of) return false;
  for (const graph::LayerRow& layer : graph.layers()) {
    const graph::LayerOperands operands = precision.operands_of(layer.name, /*spared=*/false);
    const auto by_batch = [](const graph::OperandRule& x) {
      const bool current = x.scaling.kind == config::TensorScalingConfig::Kind::kCurrent;
      return x.rounds && (x.block ? x.block->tensor_scale && !x.block->row_scaled
                                  : current && x.format != kFp32);
    };
    if (layer.has_weight && by_batch(operands.Of(Operand::kForwardX))) return true;
    using enum AttentionOperand;
    for (const AttentionOperand operand : {kSQ, kSK, kYP, kYV})
      if (layer.kind == "attention" && by_batch(operands.Of(operand))) return true;
  }
  return false;
}

}  // namespace

// One row of timing.csv for each logged step, over the steps since the row before. Images per
// second count the phases of training only, so that evaluations and checkpoints do not lower them;
// `seconds` is the time on the clock.
void Session::Timing(const step::StepResult& r) {
  const double now = telemetry::SteadySeconds();
  const step::PhaseSeconds s = trainer_.TakeSeconds();
  telemetry::TimingRow row;
  row.step = r.step;
  row.seconds = now - last_timing_;
  row.images_per_second =
      static_cast<double>(timed_images_) / (s.data + s.forward + s.backward + s.update + s.log);
  if (TokensOfSample() > 0)
    row.tokens = row.images_per_second * static_cast<double>(TokensOfSample());
  row.data = s.data, row.forward = s.forward, row.backward = s.backward, row.update = s.update,
  row.log = s.log;
  training_seconds_ += s.data + s.forward + s.backward + s.update + s.log;
  if (writes()) recorder_.Timing(row);
  last_timing_ = now;
  timed_images_ = 0;
}

// A backend may know how its ops run only after they have run.
void Session::LogDiagnostics() {
  const std::vector<std::string> diagnostics = p_.backend.Diagnostics();
  for (; diagnostics_logged_ < diagnostics.size(); ++diagnostics_logged_)
    run_.log.Debug(diagnostics[diagnostics_logged_]);
  for (const std::string& warning : p_.backend.Warnings()) {
    if (Contains(warnings_logged_, warning)) continue;
    run_.log.Warning(warning);
    warnings_logged_.push_back(warning);
  }
}

// Broken images can be found before the first step; their rows then have step 1, since logs count
// from 1.
void Session::NoteBroken(const std::string& split, const std::vector<data::BrokenImage>& broken) {
  if (!writes()) return;
  const std::int64_t step = std::max<std::int64_t>(trainer_.steps(), 1);
  for (const data::BrokenImage& image : broken) {
    recorder_.Event({step, (step - 1) / steps_per_epoch_ + 1, telemetry::kBrokenImage, "", "",
                     image.file, "left out of split " + split + ": " + image.message});
    WarnOfBroken(split, image);
  }
}

void Session::WarnOfBroken(const std::string& split, const data::BrokenImage& image) {
  // The set holds one file more than are named: the one that told of further files.
  constexpr std::size_t kWarned = 10;
  if (broken_.size() > kWarned || !broken_.insert(image.file).second) return;
  run_.log.Warning(broken_.size() <= kWarned
                       ? data::LeftOutText(split, image)
                       : "more images that cannot be read are left out; events.csv names all");
}

// A run that goes on has these rows in its events.csv already, and only warns again.
void Session::NoteLeftOut(const std::vector<data::BrokenImage>& of_weights) {
  if (!writes()) return;
  const auto tell = [this](const std::string& split, const std::vector<data::BrokenImage>& images) {
    if (trainer_.steps() == 0) return NoteBroken(split, images);
    for (const data::BrokenImage& image : images) WarnOfBroken(split, image);
  };
  tell("train", run_.data.train.left_out);
  tell("validation", run_.data.validation.left_out);
  tell("test", run_.data.test.left_out);
  tell("train", of_weights);
}

// Sends each as three numbers, the file and the message; two of the numbers are their lengths.
std::vector<data::BrokenImage> Session::BrokenOfAll(const std::vector<data::BrokenImage>& mine) {
  if (p_.config.data.on_broken == config::BrokenImages::kFail) return mine;
  std::string text;
  for (const data::BrokenImage& image : mine)
    text += Formatted("%lld %zu %zu ", static_cast<long long>(image.image), image.file.size(),
                      image.message.size()) +
            image.file + image.message;
  std::vector<data::BrokenImage> all;
  for (const std::string& of_rank : run_.team.AllGatherText(text))
    for (std::size_t at = 0; at < of_rank.size();) {
      const auto number = [&] {
        const std::size_t begin = at;
        at = of_rank.find(' ', at) + 1;
        return std::stoll(of_rank.substr(begin, at - 1 - begin));
      };
      const auto piece = [&](std::size_t size) {
        at += size;
        return of_rank.substr(at - size, size);
      };
      data::BrokenImage image;
      image.image = number();
      const auto file = static_cast<std::size_t>(number());
      const auto message = static_cast<std::size_t>(number());
      image.file = piece(file);
      image.message = piece(message);
      all.push_back(std::move(image));
    }
  return all;
}

// Rows that belong to the start of a run: weights of classes, a switch of the precision, and the
// scale that init_scale: auto has chosen.
void Session::ReportStart() {
  if (!writes()) return;
  if (ComputesClassWeights(p_.config) && trainer_.steps() == 0) {
    std::string values;
    for (const double weight : p_.config.train.class_weights.values)
      values += (values.empty() ? "" : " ") + ShortestText(weight);
    recorder_.Event({1, 1, "class_weights", "", "", values,
                     "weights of the classes in the loss, by median frequency"});
  }
  ReportSwitch();
  if (IsScaledByBatch(p_.config.precision, p_.graph))
    run_.log.Info(
        "operands x have scales by the largest value of a batch: what evaluations give "
        "depends a little on data.evaluate_batch_size (" +
        std::to_string(p_.config.data.evaluation_batch()) + ")");
  if (!start_scale_) return;
  const std::string scale = ShortestText(start_scale_->scale);
  const std::string message = "the run starts with S = " + scale + ": " + start_scale_->reason;
  recorder_.Event({1, 1, "init_scale", "", "", scale, message});
  run_.log.Info("init_scale: auto: " + message);
}

// A resumed session whose first step is the first after the switch says it again: the logs end
// before it.
void Session::ReportSwitch() {
  const std::int64_t step = trainer_.steps() + 1;
  for (const config::PrecisionSwitchConfig& change : run_.config.precision.schedule) {
    if (change.from_step != step || step > total_steps_) continue;
    const std::string message =
        "precision.schedule: from step " + std::to_string(step) + " on " + config::TextOf(change);
    recorder_.Event({step, (step - 1) / steps_per_epoch_ + 1, "precision", "", "",
                     FormatName(p_.config.precision.format), message});
    run_.log.Info(message);
  }
}

// A remaining time below 0 means that the run has no limit of time.
void Session::ShowProgress(const step::StepResult& r) {
  telemetry::ProgressState s;
  s.epoch = r.epoch;
  s.epochs = telemetry::WholeEpochs(total_steps_, steps_per_epoch_);
  s.step = r.step, s.steps = total_steps_;
  s.loss = r.loss, s.accuracy = r.accuracy;
  s.scale = r.scale, s.skipped = skipped_;
  s.tokens = TokensOfSample();
  const double limit = p_.config.train.max_minutes * 60;
  progress_.Update(s, r.images, limit > 0 ? limit - Seconds() : -1);
}

// Writes the summary's files and prints it. What was trained since the last timing row is added
// first; after that the seconds of the trainer are used up.
bool Session::Summarize(telemetry::RunStatus status) {
  if (!writes()) return true;
  telemetry::SummaryFacts f;
  f.name = p_.config.name;
  f.folder = run_.folder;
  f.status = status;
  f.model = p_.config.model.zoo.empty() ? "layers" : p_.config.model.zoo;
  f.dataset = p_.config.data.dataset;
  f.format = FormatName(p_.config.precision.format);
  f.policy = p_.policy.name();
  f.device = p_.backend.Describe();
  f.epochs = trainer_.steps() / steps_per_epoch_;
  f.seconds = Seconds();
  const step::PhaseSeconds rest = trainer_.TakeSeconds();
  training_seconds_ += rest.data + rest.forward + rest.backward + rest.update + rest.log;
  f.images_per_second =
      training_seconds_ > 0 ? static_cast<double>(images_) / training_seconds_ : 0;
  f.tokens = TokensOfSample();
  f.bytes = TokensAreBytes(p_.config);
  f.log_every = p_.config.log.every;
  f.uncounted = config::UncountedStatistics(run_.config);
  f.kept_in_the_mean = config::KeptInTheMean(run_.config.precision);
  f.processor = telemetry::CpuModel();
  f.threads = p_.threads;
  if (distributed_.on_host() && training_seconds_ > 0)
    run_.log.Info(Formatted("waited %.1f %% of the time for sums of gradients (%d processes)",
                            100 * distributed_.waited_seconds() / training_seconds_,
                            run_.team.ranks()));
  for (const Version& v : Versions()) f.versions.emplace_back(v.name, v.value);
  telemetry::WriteSummary(f, recorder_.run(), recorder_.layers());
  return run_.log.Result(telemetry::SummaryText(f, recorder_.run(), recorder_.layers()),
                         telemetry::SummaryText(f, recorder_.run(), recorder_.layers(), true));
}

}  // namespace ada::run
