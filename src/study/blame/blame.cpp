// blame: which layer's format, or which kind of tensor's, changes what a training does.
// Forks of a run in memory (run/fork/fork.h) are compared with the run's own way on from its
// newest checkpoint. This file puts the parts in order and prints what they found.
#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/file.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/blame/findings.h"
#include "study/output.h"
#include "study/run_files.h"
#include "study/text_table.h"
#include "telemetry/csv.h"

namespace ada::study {
namespace {

void PrintCsv(const std::vector<Suspect>& suspects, std::ostream& out) {
  out << "rank,layer,tensor,effect,noise,significant\n";
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    const Suspect& s = suspects[i];
    telemetry::CsvRow row;
    row.Integer(static_cast<std::int64_t>(i) + 1).Text(s.layer).Text(s.tensor);
    row.Number(s.effect).Number(s.noise).Text(s.significant ? "true" : "false");
    out << row.text() << '\n';
  }
}

void PrintBlameJson(const run::ForkSource& source, const BlameOptions& options,
                    const std::vector<Suspect>& suspects, const std::string& trouble,
                    std::ostream& out) {
  const bool losses = options.metric == BlameOptions::Metric::kLoss;
  OrderedJson json = CommandJson("blame");
  json["run"] = options.folder;
  json["from_step"] = source.step();
  json["steps"] = options.steps;
  json["metric"] = losses ? "loss" : "gradient";
  json["trouble"] = trouble;
  json["rows"] = OrderedJson::array();
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    const Suspect& s = suspects[i];
    json["rows"].push_back({{"rank", i + 1},
                            {"layer", s.layer},
                            {"tensor", s.tensor},
                            {"effect", s.effect},
                            {"noise", s.noise},
                            {"significant", s.significant}});
  }
  PrintJson(json, out);
}

std::string WhatIsMeasured(const BlameOptions& options) {
  return options.metric == BlameOptions::Metric::kLoss
             ? "the loss over " + Counted(options.steps, "step")
             : "weight gradients after " + Counted(options.steps, "step");
}

// A run that does not train changes by chance from step to step, and so do its forks.
std::string TroubleText(const std::string& trouble) {
  return "as it was, the run " + trouble +
         ". What changes in a run that does not train says little of its formats.";
}

// A table of those above the noise, and the names of the others. trouble: of the fork as it was.
void PrintBlame(const run::ForkSource& source, const BlameOptions& options,
                const std::vector<Suspect>& suspects, const std::string& trouble,
                std::ostream& out) {
  // The title says what was asked: metric, steps and from where.
  PrintWrapped("run " + Visible(source.config().name) + " from step " +
                   std::to_string(source.step()) + " on: how much " + WhatIsMeasured(options) +
                   " change" + (options.metric == BlameOptions::Metric::kLoss ? "s" : "") +
                   " where one of these is in fp32, and what chance alone changes",
               2, out);
  if (!trouble.empty()) PrintWrapped(TroubleText(trouble), 2, out);
  TextTable table({"in fp32", "effect", "noise", "times"});
  std::vector<std::string> below;
  for (const Suspect& s : suspects) {
    if (!s.significant) {
      below.push_back(s.name());
      continue;
    }
    table.Row({s.name(), Formatted("%.3g", s.effect), Formatted("%.3g", s.noise),
               s.noise > 0 ? Formatted("%.1f", s.effect / s.noise) : "-"});
  }
  if (below.size() == suspects.size())
    out << (trouble.empty() ? "Nothing stands out of the noise: no format here is to blame.\n"
                            : "None of these in fp32 changes that.\n");
  else
    table.Print(out, kTerminalWidth);
  if (below.empty()) return;
  // The suspects are sorted, so the first below the noise has the largest effect of these.
  const Suspect& first = *std::find_if(suspects.begin(), suspects.end(),
                                       [](const Suspect& s) { return !s.significant; });
  out << "Below twice the noise (the largest effect " << Formatted("%.3g", first.effect)
      << ", noise " << Formatted("%.3g", first.noise) << "):\n";
  PrintList(below, 2, out, kTerminalWidth);
}

// A horizontal bar a suspect in an SVG of fixed width; bars are shares of the largest finite
// effect, and infinite ones are as long as that.
std::string BlamePicture(const std::vector<Suspect>& suspects, const std::string& title) {
  constexpr int kRow = 22, kLeft = 220, kBars = 480, kTop = 56;
  double most = 0;
  for (const Suspect& s : suspects)
    if (std::isfinite(s.effect)) most = std::max({most, s.effect, s.noise});
  if (most == 0) most = 1;
  const int height = kTop + kRow * static_cast<int>(suspects.size()) + 16;
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" " +
                    Formatted("viewBox=\"0 0 %d %d\"", kLeft + kBars + 40, height) +
                    " font-family=\"sans-serif\" font-size=\"13\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  svg += "<text x=\"12\" y=\"20\" font-size=\"15\">" + Html(title) + "</text>\n" +
         "<text x=\"12\" y=\"40\" fill=\"#666\">what changes with it in fp32; the line: noise of "
         "twins; dark: above twice that</text>\n";
  for (std::size_t i = 0; i < suspects.size(); ++i) {
    const Suspect& s = suspects[i];
    const int y = kTop + kRow * static_cast<int>(i);
    const double share = std::isfinite(s.effect) ? s.effect / most : 1;
    const double noise = std::isfinite(s.noise) ? s.noise / most : 1;
    svg += SvgText(kLeft - 8, y + 15, CutText(s.name(), 30), "end") + "\n" +
           SvgRect(kLeft, y + 3, share * kBars, kRow - 6, s.significant ? "#b3261e" : "#c9c9c9",
                   s.name() + Formatted(": effect %.3g, noise %.3g", s.effect, s.noise)) +
           "\n" + SvgRect(kLeft + noise * kBars, y + 1, 2, kRow - 2, "black") + "\n";
  }
  return svg + "</svg>\n";
}

}  // namespace

void Blame(const BlameOptions& options, std::ostream& out, telemetry::Log& log) {
  RequireRun(options.folder);
  const run::ForkSource source = run::ForkSource::OfRun(options.folder, options.threads);
  std::vector<Suspect> suspects = Suspects(source, options.by);
  const std::string trouble = Judge(source, options, suspects, log);
  log.SetStatus("");
  if (!options.picture.empty())
    WriteFileAtomically(
        options.picture,
        BlamePicture(suspects, source.config().name + ": " + WhatIsMeasured(options) +
                                   " from step " + std::to_string(source.step()) + " on"));
  if (options.view == View::kJson) return PrintBlameJson(source, options, suspects, trouble, out);
  if (options.view != View::kCsv) return PrintBlame(source, options, suspects, trouble, out);
  if (!trouble.empty()) log.Warning(TroubleText(trouble));
  PrintCsv(suspects, out);
}

}  // namespace ada::study
