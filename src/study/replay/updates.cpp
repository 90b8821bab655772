// replay --updates: parameter and gradients of a file through the update that a training makes,
// without a network. The optimizer is the object that a training has.
#include <cstring>
#include <deque>
#include <map>
#include <ostream>

#include "backend/cpu/cpu_backend.h"
#include "backend/state_maps.h"
#include "error.h"
#include "io/text.h"
#include "number/blocks/block_rules_inline.h"
#include "optim/optimizer.h"
#include "optim/states.h"
#include "step/specs.h"
#include "study/commands.h"
#include "study/output.h"
#include "study/text_table.h"

namespace ada::study {
namespace {

// A row of the CSV.
struct LostRow {
  std::int64_t step = 0;
  std::string tensor, format;
  std::int64_t numel = 0, zeros_before = 0, zeros_after = 0, underflow = 0, overflow = 0;
  std::optional<double> zero_denominators;
  double grad_norm = 0;
  bool skipped = false;

  static constexpr auto Columns() {
    using enum telemetry::ColumnTraits;
    return std::to_array<telemetry::Column<LostRow>>({
        {"step", &LostRow::step},
        {"tensor", &LostRow::tensor},
        {"format", &LostRow::format},
        {"numel", &LostRow::numel},
        {"zeros_before", &LostRow::zeros_before},
        {"zeros_after", &LostRow::zeros_after},
        {"underflow", &LostRow::underflow},
        {"overflow", &LostRow::overflow},
        {"zero_denominators", &LostRow::zero_denominators, kEmptyNan | kPlain},
        {"grad_norm", &LostRow::grad_norm},
        {"skipped", &LostRow::skipped},
    });
  }
};

using backend::StateStorage;

// The tensors of a file, checked.
class UpdateFile {
 public:
  explicit UpdateFile(const std::string& path) : file_(SafetensorsFile::Open(path)) {
    const TensorEntry* p = file_.Find("p");
    if (p == nullptr) Fail("no tensor p, the parameter");
    if (!IsFloat(p->dtype)) Fail("p is " + p->dtype_text() + ", expected floating-point numbers");
    dims_ = p->shape;
    while (const TensorEntry* g = file_.Find(NameOf(steps_ + 1))) {
      if (g->shape != dims_) Fail(g->name + " has another shape than p");
      if (!IsFloat(g->dtype))
        Fail(g->name + " is " + g->dtype_text() + ", expected floating-point numbers");
      ++steps_;
    }
    if (steps_ == 0) Fail("no tensor g.1, the gradient of the first step");
  }
  const std::vector<std::int64_t>& dims() const { return dims_; }
  std::int64_t steps() const { return steps_; }
  std::vector<float> Parameter() const { return file_.ReadF32("p"); }
  std::vector<float> Gradient(std::int64_t step) const { return file_.ReadF32(NameOf(step)); }

 private:
  static std::string NameOf(std::int64_t step) { return "g." + std::to_string(step); }
  [[noreturn]] void Fail(const std::string& what) const {
    throw DataError(file_.path() + ": " + what +
                    "; replay --updates needs p and g.1, g.2 ... of its shape");
  }
  SafetensorsFile file_;
  std::vector<std::int64_t> dims_;
  std::int64_t steps_ = 0;
};

// The tensors of the output, in memory until it is written.
class UpdateOutput {
 public:
  template <class T>
  void Add(const std::string& name, DType type, const std::vector<std::int64_t>& dims,
           const std::vector<T>& values) {
    std::vector<std::byte>& bytes = kept_.emplace_back(values.size() * sizeof(T));
    if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
    writer_.Add(name, type, dims, bytes);
  }
  void WriteTo(const std::string& path) const { writer_.WriteAtomically(path); }

 private:
  std::deque<std::vector<std::byte>> kept_;
  SafetensorsWriter writer_;
};

std::vector<float> StoredValues(backend::Backend& backend, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.shape.numel()));
  backend.Download(values.data(), tensor.data, tensor.bytes());
  return values;
}

// The codes of stored values, which are products of a code's value and the scale of its block.
void AddCodes(const std::string& name, const std::string& ending, const StateStorage& kept,
              const std::vector<float>& values, const std::vector<float>& scales,
              const std::vector<std::int64_t>& dims, UpdateOutput& output) {
  const backend::StateCoder coder(kept);
  const std::int64_t block = backend::BlockOf(kept, std::ssize(values));
  const auto scaled = [&](std::size_t i) {
    const float scale = scales[i / static_cast<std::size_t>(block)];
    return scale > 0 ? values[i] / scale : 0.0f;
  };
  if (coder.map == nullptr && kept.format.exponent_bits + kept.format.mantissa_bits > 7) {
    std::vector<std::uint16_t> codes(values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      codes[i] = Fp16CodeOf(RoundToGrid(coder.grid, scaled(i)));
    return output.Add(name + "_codes" + ending, DType::kF16, dims, codes);
  }
  std::vector<std::uint8_t> codes(values.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    codes[i] = coder.map != nullptr ? coder.map->CodeOf(scaled(i))
                                    : static_cast<std::uint8_t>(ElementCodeOf(
                                          kept.format, RoundToGrid(coder.grid, scaled(i))));
  output.Add(name + "_codes" + ending, DType::kU8, dims, codes);
}

class UpdateReplay {
 public:
  explicit UpdateReplay(const ReplayUpdatesOptions& options)
      : options_(options),
        file_(options.file),
        rule_(step::UpdateRuleOf(options.update.optimizer, options.update.precision)),
        backend_(backend::cpu::MakeCpuBackend(1)) {
    std::int64_t numel = 1;
    for (const std::int64_t dim : file_.dims()) numel *= dim;
    parameter_.name = "p", parameter_.dims = file_.dims();
    parameter_.value = Make(file_.Parameter()), parameter_.gradient = Make({});
    optimized_ = step::OptimizedFrom(options.update.optimizer, parameter_);
    optimizer_.emplace(*backend_, rule_, std::vector{optimized_}, options.update.train.clip_norm);
    optimizer_->RoundMasters();
  }

  template <class Use>
  void Run(const Use& use) {
    for (std::int64_t step = 1; step <= file_.steps(); ++step) {
      const std::vector<float> gradient = file_.Gradient(step);
      backend_->Upload(parameter_.gradient.data, gradient.data(), parameter_.gradient.bytes());
      optimizer_->Update(Plan());
      const backend::UpdateOutcome outcome = optimizer_->Outcome();
      Rows(step, outcome, use);
      if (!options_.output.empty()) Add("." + std::to_string(step));
    }
    if (!options_.output.empty()) output_.WriteTo(options_.output);
  }
  std::int64_t steps() const { return file_.steps(); }

 private:
  Tensor Make(const std::vector<float>& values) {
    std::int64_t numel = 1;
    for (const std::int64_t dim : file_.dims()) numel *= dim;
    Tensor tensor;
    tensor.shape = {numel, 1, 1, 1};
    tensor.data = backend_->Allocate(tensor.bytes());
    if (!values.empty()) backend_->Upload(tensor.data, values.data(), tensor.bytes());
    return tensor;
  }

  // Gradients are taken as they come, without a scale.
  backend::UpdatePlan Plan() const {
    backend::UpdatePlan plan;
    plan.step.lr = options_.update.optimizer.lr, plan.step.seed = options_.seed;
    plan.count = true;
    const scaling::OverflowRepair& repair = options_.update.scaling.on_overflow;
    if (repair.action == scaling::OverflowRepair::Action::kSanitize)
      step::AddRepair(repair, /*scale=*/1, plan);
    return plan;
  }

  template <class Use>
  void Rows(std::int64_t step, const backend::UpdateOutcome& outcome, const Use& use) const {
    const config::PrecisionConfig& precision = options_.update.precision;
    const auto row = [&](const std::string& tensor, const std::string& format,
                         const TensorStats& stats) {
      LostRow lost;
      lost.step = step, lost.tensor = tensor, lost.format = format;
      lost.numel = stats.numel, lost.zeros_before = stats.zeros_before;
      lost.zeros_after = stats.zeros_after, lost.underflow = stats.underflow;
      lost.overflow = stats.overflow;
      if (stats.zero_denominators >= 0)
        lost.zero_denominators = static_cast<double>(stats.zero_denominators);
      lost.grad_norm = outcome.norm, lost.skipped = !outcome.updated;
      use(lost);
    };
    const std::string masters = FormatName(precision.masters.format);
    const std::vector<optim::UpdateStats> stats = optimizer_->Stats();
    if (stats.empty()) return row("update", masters, {});
    row("update", masters, stats[0].change);
    if (stats[0].master.numel > 0) row("master", masters, stats[0].master);
    const backend::NewtonSchulzStats& ns = stats[0].newton_schulz;
    if (ns.products.numel > 0) row("ns", FormatName(OwnRule().ns_format), ns.products);
    for (const auto& [state, counts] : stats[0].states)
      if (counts.numel > 0)
        row("state." + state, step::StateFormatName(precision, OwnRule(), state), counts);
  }

  const backend::UpdateRule& OwnRule() const { return optimized_.other ? *rule_.others : rule_; }

  // All that the step left, under torch's names.
  void Add(const std::string& ending) {
    output_.Add("p" + ending, DType::kF32, file_.dims(), StoredValues(*backend_, parameter_.value));
    const backend::UpdateSlot& slot = optimizer_->slots()[0];
    const Tensor* const states[] = {&slot.state1, &slot.state2, &slot.state3};
    const Tensor* const scales[] = {&slot.scale1, &slot.scale2, &slot.scale3};
    std::map<std::string, std::vector<std::int64_t>> dims;
    for (const optim::StateTensor& state : optimizer_->state())
      dims[state.name] = state.dims.empty() ? file_.dims() : state.dims;
    for (const optim::StateSpec& spec : optim::StatesOf(OwnRule(), slot.matrix)) {
      const std::string name = optim::TorchName(spec.name);
      const std::vector<float> values = StoredValues(*backend_, *states[spec.slot]);
      output_.Add(name + ending, DType::kF32, dims.at("optimizer.p." + std::string(spec.name)),
                  values);
      if (!*scales[spec.slot]) continue;
      const std::vector<float> scale = StoredValues(*backend_, *scales[spec.slot]);
      output_.Add(name + "_scale" + ending, DType::kF32, {std::ssize(scale)}, scale);
      AddCodes(name, ending, backend::StateStorageOf(OwnRule(), spec.slot), values, scale,
               file_.dims(), output_);
    }
    AddRest(slot, ending);
  }
  void AddRest(const backend::UpdateSlot& slot, const std::string& ending) {
    if (!slot.rest) return;
    const std::vector<float> rest = StoredValues(*backend_, slot.rest);
    const std::string name = optim::NameOfRest(OwnRule()) + ending;
    if (OwnRule().compensation == backend::UpdateRule::Compensation::kKahan)
      return output_.Add(name, DType::kF32, file_.dims(), rest);
    std::vector<std::int16_t> low(rest.size());
    for (std::size_t i = 0; i < rest.size(); ++i) low[i] = static_cast<std::int16_t>(rest[i]);
    output_.Add(name, DType::kI16, file_.dims(), low);
  }

  const ReplayUpdatesOptions& options_;
  UpdateFile file_;
  backend::UpdateRule rule_;
  std::unique_ptr<backend::Backend> backend_;
  graph::Parameter parameter_;
  optim::OptimizedParameter optimized_;
  std::optional<optim::Optimizer> optimizer_;
  UpdateOutput output_;
};

// Sums over the steps, a line for each kind of value.
class LostTable {
 public:
  void Add(const LostRow& row) {
    if (order_.empty() || sums_.find(row.tensor) == sums_.end()) order_.push_back(row.tensor);
    Sum& sum = sums_[row.tensor];
    sum.format = row.format;
    sum.values += row.numel, sum.nonzero += row.numel - row.zeros_before;
    sum.lost += row.underflow, sum.overflow += row.overflow;
    if (row.zero_denominators) sum.pairs = std::max(sum.pairs, 0.0) + *row.zero_denominators;
    skipped_ += row.skipped && row.tensor == "update";
  }
  void Print(std::int64_t steps, std::ostream& out) const {
    TextTable table(
        {"tensor", "format", "values", "lost", "lost %", "overflow", "zero denominators"}, 2);
    for (const std::string& name : order_) {
      const Sum& sum = sums_.at(name);
      const double share =
          sum.nonzero > 0 ? 100.0 * static_cast<double>(sum.lost) / static_cast<double>(sum.nonzero)
                          : 0;
      table.Row({name, sum.format, std::to_string(sum.values), std::to_string(sum.lost),
                 PctText(share), std::to_string(sum.overflow),
                 sum.pairs < 0 ? "-" : ShortestText(sum.pairs)});
    }
    table.Print(out);
    out << "  " << steps << " steps";
    if (skipped_ > 0) out << ", " << skipped_ << " of them skipped: their gradients are not finite";
    out << '\n';
  }

 private:
  struct Sum {
    std::string format;
    std::int64_t values = 0, nonzero = 0, lost = 0, overflow = 0;
    double pairs = -1;
  };
  std::vector<std::string> order_;
  std::map<std::string, Sum> sums_;
  std::int64_t skipped_ = 0;
};

}  // namespace

void ReplayUpdates(const ReplayUpdatesOptions& options, std::ostream& out) {
  UpdateReplay replay(options);
  const bool csv = options.view == View::kCsv;
  if (csv) PrintCsvHeader<LostRow>(out);
  LostTable table;
  replay.Run([&](const LostRow& row) {
    if (csv) PrintCsvRow(row, out);
    table.Add(row);
  });
  if (!csv) table.Print(replay.steps(), out);
}

}  // namespace ada::study
