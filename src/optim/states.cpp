// One row a kind: names, shapes and bytes of its states.
#include "optim/states.h"

namespace ada::optim {

using Kind = backend::UpdateRule::Kind;

std::vector<StateSpec> StatesOf(const backend::UpdateRule& rule,
                                const backend::MatrixShape& matrix) {
  using Form = StateSpec::Form;
  switch (rule.kind) {
    case Kind::kSgd:
      if (rule.momentum == 0) return {};
      return {{rule.velocity == backend::UpdateRule::Velocity::kSteps ? "velocity" : "momentum"}};
    case Kind::kAdam:
    case Kind::kAdamW:
      if (rule.amsgrad)
        return {{"exp_avg"}, {"exp_avg_sq", Form::kLike, 1}, {"max_exp_avg_sq", Form::kLike, 2}};
      return {{"exp_avg"}, {"exp_avg_sq", Form::kLike, 1}};
    case Kind::kNadam:
    case Kind::kRadam:
    case Kind::kAdopt:
    case Kind::kLamb:
    case Kind::kStableAdamW:
      return {{"exp_avg"}, {"exp_avg_sq", Form::kLike, 1}};
    case Kind::kAdemamix:
      return {{"exp_avg"}, {"exp_avg_sq", Form::kLike, 1}, {"exp_avg_slow", Form::kLike, 2}};
    case Kind::kLion:
      return {{"exp_avg"}};
    case Kind::kRmsprop: {
      std::vector<StateSpec> states = {{"square_avg"}};
      if (rule.momentum > 0) states.push_back({"momentum_buffer", Form::kLike, 1});
      if (rule.centered) states.push_back({"grad_avg", Form::kLike, 2});
      return states;
    }
    case Kind::kAdagrad:
      return {{"sum"}};
    case Kind::kAdamax:
      return {{"exp_avg"}, {"exp_inf", Form::kLike, 1}};
    case Kind::kAdafactor:
      if (matrix.rows == 0) return {{"variance"}};
      return {{"row_var", Form::kRows}, {"col_var", Form::kColumns, 1}};
    case Kind::kScheduleFree:
      return {{"z"}, {"exp_avg_sq", Form::kLike, 1}, {"averaging", Form::kPair, 2}};
    case Kind::kMuon:
      return {{"momentum_buffer"}};
  }
  return {};
}

std::string TorchName(const std::string& state) {
  return state == "momentum" ? "momentum_buffer" : state;
}

std::string NameOfRest(const backend::UpdateRule& rule) {
  switch (rule.compensation) {
    case backend::UpdateRule::Compensation::kKahan:
      return "kahan_comp";
    case backend::UpdateRule::Compensation::kRemainder:
      return "remainder";
    default:
      return "";
  }
}

backend::MatrixShape MatrixOf(const backend::UpdateRule& rule,
                              const std::vector<std::int64_t>& dims) {
  backend::MatrixShape matrix;
  if (dims.size() < 2) return matrix;
  const bool first = rule.kind == Kind::kMuon;
  const std::size_t split = first ? 1 : dims.size() - 1;
  matrix.rows = 1, matrix.columns = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i >= split)
      matrix.columns *= dims[i];
    else if (i + 1 == split)
      matrix.rows = dims[i];
    else
      matrix.count *= dims[i];
  }
  return matrix;
}

}  // namespace ada::optim
