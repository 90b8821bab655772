#include "telemetry/layer_totals.h"

#include <algorithm>

#include "telemetry/csv.h"
#include "telemetry/csv_reader.h"

namespace ada::telemetry {
namespace {

// The element of `items` under `key`, made where there is none.
template <class Item, class Key>
Item& At(std::vector<Item>& items, std::map<Key, std::size_t>& index, const Key& key) {
  const auto [place, is_new] = index.try_emplace(key, items.size());
  if (is_new) items.emplace_back();
  return items[place->second];
}

}  // namespace

double UnderflowPct(const TensorStats& stats) {
  const std::int64_t nonzero = stats.numel - stats.zeros_before;
  if (nonzero <= 0) return NAN;
  return 100.0 * static_cast<double>(stats.underflow) / static_cast<double>(nonzero);
}

void LayerTotals::AddUnderflow(const std::string& layer, const std::string& tensor, double scale,
                               const TensorStats& stats) {
  TensorTotals& totals = At(tensors_, tensor_index_, std::pair(layer, tensor));
  totals.layer = layer;
  totals.tensor = tensor;
  ++totals.rows;
  totals.numel += stats.numel;
  totals.zeros_before += stats.zeros_before;
  totals.underflow += stats.underflow;
  totals.overflow += stats.overflow;
  totals.last_scale = scale;
  totals.last_pct = 0;
  const double pct = UnderflowPct(stats);
  if (std::isnan(pct)) return;
  totals.last_pct = pct;
  ++totals.pct_rows;
  totals.pct_sum += pct;
  totals.pct_max = std::max(totals.pct_max, pct);
}

void LayerTotals::AddScale(const std::string& layer, const scaling::ScaleDecision& decision) {
  const bool branch = decision.limit == scaling::Limit::kBranch;
  Add(layer, {.scale_in = decision.scale_in,
              .scale_out = decision.scale_out,
              .bound = branch ? NAN : AsLogged(decision.bound),
              .alpha = branch ? NAN : decision.alpha,
              .limit = scaling::LimitName(decision.limit)});
}

void LayerTotals::Add(const std::string& layer, const ScaleRow& row) {
  const bool branch = row.limit == scaling::LimitName(scaling::Limit::kBranch);
  ScaleTotals& totals = At(scales_, scale_index_, std::pair(layer, branch));
  totals.layer = layer;
  totals.branch = branch;
  ++totals.rows;
  totals.last_scale_in = row.scale_in;
  totals.last_scale_out = row.scale_out;
  totals.last_bound = row.bound;
  totals.last_alpha = row.alpha;
  totals.last_limit = row.limit;
  ++totals.limits[row.limit];
}

const ScaleTotals* LayerTotals::FindScale(const std::string& layer, bool branch) const {
  const auto found = scale_index_.find({layer, branch});
  return found == scale_index_.end() ? nullptr : &scales_[found->second];
}

const TensorTotals* LayerTotals::FindTensor(const std::string& layer,
                                            const std::string& tensor) const {
  const auto found = tensor_index_.find({layer, tensor});
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

void LayerTotals::RebuildFrom(const std::string& folder) {
  *this = LayerTotals();
  CsvReader underflow(folder + "/underflow.csv");
  const std::size_t layer = underflow.Column("layer"), tensor = underflow.Column("tensor"),
                    scale = underflow.Column("scale"), numel = underflow.Column("numel"),
                    zeros = underflow.Column("zeros_before"), lost = underflow.Column("underflow"),
                    overflow = underflow.Column("overflow");
  while (underflow.Next()) {
    TensorStats stats;
    stats.numel = underflow.Integer(numel);
    stats.zeros_before = underflow.Integer(zeros);
    stats.underflow = underflow.Integer(lost);
    stats.overflow = underflow.Integer(overflow);
    AddUnderflow(underflow.Text(layer), underflow.Text(tensor), underflow.Number(scale), stats);
  }
  CsvReader scales(folder + "/scales.csv");
  const std::size_t name = scales.Column("layer"), in = scales.Column("scale_in"),
                    bound = scales.Column("bound"), alpha = scales.Column("alpha"),
                    out = scales.Column("scale_out"), limit = scales.Column("limit");
  while (scales.Next()) {
    Add(scales.Text(name), {.scale_in = scales.Number(in),
                            .scale_out = scales.Number(out),
                            .bound = scales.NumberOrNan(bound),
                            .alpha = scales.NumberOrNan(alpha),
                            .limit = scales.Text(limit)});
  }
}

}  // namespace ada::telemetry
