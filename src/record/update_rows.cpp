// Joins the counts of the parameters of a layer, of which each tensor gets a row.
#include <algorithm>
#include <cmath>

#include "io/tensor_names.h"
#include "io/text.h"
#include "number/stats.h"
#include "record/step_log.h"
#include "step/specs.h"
#include "step/update_rule.h"

namespace ada::record {
namespace {

// Errors of two matrices are those of the worse.
void Add(const UpdateRow& part, UpdateRow& all) {
  all.stats = CombinedStats(all.stats, part.stats);
  all.error.mse = std::fmax(all.error.mse, part.error.mse);
  all.error.sqnr_db = std::fmin(all.error.sqnr_db, part.error.sqnr_db);
}

// The rows of all that one layer has of a tensor as one, before those of its parts where there are
// several. Parts of one name (a state of several parameters) are one.
std::vector<UpdateRow> WithWholes(const std::vector<UpdateRow>& parts) {
  std::vector<UpdateRow> rows;
  for (std::size_t first = 0, end = 0; first < parts.size(); first = end) {
    while (end < parts.size() && parts[end].layer == parts[first].layer) ++end;
    for (const char* const whole : {"update", "master", "state", "ns", "orthogonality"}) {
      std::vector<UpdateRow> of_whole;
      for (std::size_t i = first; i < end; ++i) {
        if (WholeTensor(parts[i].tensor) != whole) continue;
        const auto same = std::find_if(of_whole.begin(), of_whole.end(), [&](const UpdateRow& row) {
          return row.tensor == parts[i].tensor;
        });
        if (same == of_whole.end())
          of_whole.push_back(parts[i]);
        else
          Add(parts[i], *same);
      }
      if (of_whole.empty()) continue;
      UpdateRow all = of_whole.front();
      all.tensor = whole;
      for (std::size_t i = 1; i < of_whole.size(); ++i) Add(of_whole[i], all);
      rows.push_back(all);
      if (of_whole.size() > 1) rows.insert(rows.end(), of_whole.begin(), of_whole.end());
    }
  }
  return rows;
}

}  // namespace

// `kept` has an entry for each parameter with a gradient, in the graph's order; entries without
// counts have no values and get no row.
std::vector<UpdateRow> UpdateRows(const config::Config& config, const graph::Graph& graph,
                                  const std::vector<optim::KeptStats>& kept) {
  if (kept.empty()) return {};
  const config::PrecisionConfig& p = config.precision;
  const backend::UpdateRule rule = step::UpdateRuleOf(config.optimizer, p);
  const bool changes = p.masters.format != kFp32 || Contains(config.log.statistics, "update");
  std::vector<UpdateRow> parts;
  std::size_t next = 0;
  for (const graph::Parameter& parameter : graph.parameters()) {
    if (!parameter.gradient) continue;
    const std::string& layer = parameter.layer;
    const std::string of = "." + parameter.part;
    const optim::KeptStats& stats = kept.at(next++);
    const std::string masters = FormatName(p.masters.format);
    if (changes) parts.push_back({layer, "update" + of, masters, stats.change});
    if (stats.master.numel > 0) parts.push_back({layer, "master" + of, masters, stats.master});
    const backend::NewtonSchulzStats& ns = stats.newton_schulz;
    const std::string products = FormatName(rule.ns_format);
    if (ns.products.numel > 0)
      parts.push_back({layer, "ns" + of, products, ns.products, {ns.mse, ns.sqnr_db}});
    if (ns.identity.numel > 0)
      parts.push_back({layer, "orthogonality" + of, products, ns.identity});
    for (const auto& [state, counts] : stats.states)
      if (counts.numel > 0)
        parts.push_back({layer, "state." + state, step::StateFormatName(p, rule, state), counts});
  }
  return WithWholes(parts);
}

}  // namespace ada::record
