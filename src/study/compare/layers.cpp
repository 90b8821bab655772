// Scale and underflow of dx layer by layer, from underflow.csv. Means over logged steps are
// geometric for scales, which move by factors, and arithmetic for shares.
#include <algorithm>
#include <map>
#include <ostream>
#include <string_view>

#include "io/text.h"
#include "study/compare/comparison.h"
#include "study/run_files.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

// A short list keeps its order, which is the network's and easier to read.
constexpr std::size_t kShort = 16;  // layers whose order stays; of more, those that are shown
constexpr std::size_t kComparedScaleWidth = 8;
constexpr std::size_t kWorstLayers = 8;  // layers of each of two networks

std::string DifferenceText(double difference) {
  if (std::isnan(difference)) return "-";
  return difference == 0 ? "0" : Formatted("%+.3f", difference);
}

// b / a; of whole parts such as 1/1024.
// Scales are mostly powers of two, so a ratio below 1 is clearer as 1/n.
std::string RatioText(double a, double b) {
  const double parts = a / b;
  if (std::isnan(parts)) return "-";
  if (parts >= 2 && parts < 1e8 && parts == std::floor(parts)) return Formatted("1/%.0f", parts);
  return Formatted("%.4g", b / a);
}

// A layer that both runs logged; it points into the two lists of records.
struct Both {
  const LayerRecord* a;
  const LayerRecord* b;
};

using ByName = std::map<std::string_view, const LayerRecord*>;
ByName IndexOf(const std::vector<LayerRecord>& layers) {
  ByName index;
  for (const LayerRecord& layer : layers) index[layer.name] = &layer;
  return index;
}

// The distance between two values; the largest possible one if only one of them is a number.
double Distance(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;  // infinities have no difference
  return std::isnan(a) || std::isnan(b) ? INFINITY : std::fabs(a - b);
}

// In powers of two, of the mean and of the last scale together.
double ScaleDistance(const Both& l) {
  return Distance(std::log2(l.a->mean_scale), std::log2(l.b->mean_scale)) +
         Distance(std::log2(l.a->last_scale), std::log2(l.b->last_scale));
}

double PctDistance(const Both& l) {
  return Distance(l.a->mean_pct, l.b->mean_pct) + Distance(l.a->last_pct, l.b->last_pct);
}

std::vector<std::string> ScaleFields(const Both& l) {
  return {l.a->name,
          ScaleText(l.a->mean_scale, kComparedScaleWidth, 4),
          ScaleText(l.b->mean_scale, kComparedScaleWidth, 4),
          RatioText(l.a->mean_scale, l.b->mean_scale),
          ScaleText(l.a->last_scale, kComparedScaleWidth, 4),
          ScaleText(l.b->last_scale, kComparedScaleWidth, 4),
          RatioText(l.a->last_scale, l.b->last_scale)};
}

std::vector<std::string> PctFields(const Both& l) {
  return {l.a->name,
          PctText(l.a->mean_pct),
          PctText(l.b->mean_pct),
          DifferenceText(l.b->mean_pct - l.a->mean_pct),
          PctText(l.a->last_pct),
          PctText(l.b->last_pct),
          DifferenceText(l.b->last_pct - l.a->last_pct)};
}

// A row for each layer: all of few, in their order; of many those that differ most by `distance`,
// and how many do not or, unless `all`, differ less. `versus`: the title of the columns that
// compare.
void PrintDiffering(const std::string& title, std::vector<Both> layers,
                    double (*distance)(const Both&), const char* versus,
                    std::vector<std::string> (*fields)(const Both&), bool all, std::ostream& out) {
  out << '\n';
  PrintWrapped(title, 2, out, kTerminalWidth);
  std::size_t equal = 0, less = 0;
  if (layers.size() > kShort) {
    // Equal distances keep the order of the network.
    std::stable_sort(layers.begin(), layers.end(),
                     [&](const Both& x, const Both& y) { return distance(x) > distance(y); });
    while (!layers.empty() && distance(layers.back()) == 0) layers.pop_back(), ++equal;
    if (!all && layers.size() > kShort) {
      less = layers.size() - kShort;
      layers.resize(kShort);
    }
  }
  if (!layers.empty()) {
    TextTable table({"layer", "mean A", "mean B", versus, "last A", "last B", versus});
    for (const Both& layer : layers) table.Row(fields(layer));
    table.Print(out, kTerminalWidth);
  }
  if (less > 0) out << "  differ less: " << less << " layers (--all shows them)\n";
  if (equal > 0) out << "  the same in both runs: " << equal << " layers\n";
}

// Layers without a counterpart are named, since the tables leave them out.
void PrintOnly(const char* run, const std::vector<LayerRecord>& has,
               const std::vector<LayerRecord>& lacks, std::ostream& out) {
  const ByName others = IndexOf(lacks);
  std::vector<std::string> names;
  for (const LayerRecord& layer : has) {
    if (!others.contains(layer.name)) names.push_back(layer.name);
  }
  if (names.empty()) return;
  out << "\nlayers that only " << run << " has (with rows of dx)\n";
  PrintList(names, 2, out, kTerminalWidth);
}

std::int64_t MostRows(const std::vector<LayerRecord>& layers) {
  std::int64_t rows = 0;
  for (const LayerRecord& layer : layers) rows = std::max(rows, layer.rows);
  return rows;
}

// The layers of one run. One whose values all are zero gets no gradient: nothing is worse.
void PrintWorst(const char* run, std::vector<LayerRecord> layers, bool all, std::ostream& out) {
  const auto pct = [](const LayerRecord& layer) {
    return std::isnan(layer.mean_pct) ? INFINITY : layer.mean_pct;
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](const LayerRecord& x, const LayerRecord& y) { return pct(x) > pct(y); });
  out << "\nunderflow of dx of " << run << ", % of its values other than zero ("
      << Counted(MostRows(layers), "logged step") << ")\n";
  const std::size_t shown = all ? layers.size() : std::min(kWorstLayers, layers.size());
  TextTable table({"layer", "mean", "last", "mean S", "last S"});
  for (std::size_t i = 0; i < shown; ++i)
    table.Row({layers[i].name,
               std::isnan(layers[i].mean_pct) ? "no gradient" : PctText(layers[i].mean_pct),
               PctText(layers[i].last_pct), ScaleText(layers[i].mean_scale, kComparedScaleWidth, 4),
               ScaleText(layers[i].last_scale, kComparedScaleWidth, 4)});
  if (shown > 0) table.Print(out, kTerminalWidth);
  if (shown < layers.size())
    out << "  lose less: " << layers.size() - shown << " layers (--all shows them)\n";
}

}  // namespace

std::vector<LayerRecord> ReadLayers(const std::string& folder) {
  // Sums of one layer. Rows whose values all were zero have no share and do not count for its mean.
  struct Sums {
    double log_scale = 0, pct = 0;
    std::int64_t pct_rows = 0;
  };
  std::vector<LayerRecord> layers;
  std::vector<Sums> sums;
  std::map<std::string, std::size_t> index;
  EachRow<TensorRow>(folder, [&](const TensorRow& row) {
    const std::string line = LineOfGradient(row.layer, row.tensor);
    if (line.empty()) return;
    const auto [at, added] = index.try_emplace(line, layers.size());
    if (added) {
      layers.emplace_back().name = line;
      sums.emplace_back();
    }
    LayerRecord& layer = layers[at->second];
    Sums& sum = sums[at->second];
    ++layer.rows;
    layer.last_scale = row.scale;
    layer.last_pct = row.underflow_pct_nonzero;
    sum.log_scale += std::log2(row.scale);
    if (std::isnan(row.underflow_pct_nonzero)) return;
    sum.pct += row.underflow_pct_nonzero;
    ++sum.pct_rows;
  });
  for (std::size_t i = 0; i < layers.size(); ++i) {
    layers[i].mean_scale = std::exp2(sums[i].log_scale / static_cast<double>(layers[i].rows));
    if (sums[i].pct_rows > 0)
      layers[i].mean_pct = sums[i].pct / static_cast<double>(sums[i].pct_rows);
  }
  return layers;
}

void PrintLayers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b, bool all,
                 std::ostream& out) {
  if (a.empty() && b.empty()) {
    out << "\nlayers: neither run logged dx (log.every, log.statistics)\n";
    return;
  }
  std::vector<Both> both;
  const ByName of_b = IndexOf(b);
  for (const LayerRecord& layer : a) {
    const auto other = of_b.find(layer.name);
    if (other != of_b.end()) both.push_back({&layer, other->second});
  }
  const std::string steps = "(A: " + std::to_string(MostRows(a)) +
                            " logged steps, B: " + std::to_string(MostRows(b)) + ")";
  if (!both.empty()) {
    PrintDiffering("scale of dx " + steps + "; means are geometric", both, ScaleDistance, "B / A",
                   ScaleFields, all, out);
    PrintDiffering("underflow of dx, % of its values other than zero " + steps, both, PctDistance,
                   "B - A", PctFields, all, out);
  }
  PrintOnly("A", a, b, out);
  PrintOnly("B", b, a, out);
}

bool AreStrangers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b) {
  const ByName of_b = IndexOf(b);
  const auto common = static_cast<std::size_t>(std::count_if(
      a.begin(), a.end(), [&](const LayerRecord& layer) { return of_b.contains(layer.name); }));
  return 2 * common < std::max(a.size(), b.size());
}

void PrintWorstLayers(const std::vector<LayerRecord>& a, const std::vector<LayerRecord>& b,
                      bool all, std::ostream& out) {
  PrintWorst("A", a, all, out);
  PrintWorst("B", b, all, out);
}

}  // namespace ada::study
