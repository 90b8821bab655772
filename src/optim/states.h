// Which states each rule keeps of a parameter, in torch.optim's words.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "backend/update.h"

namespace ada::optim {

// One state of a parameter.
struct StateSpec {
  enum class Form : std::uint8_t {
    kLike,     // of the parameter's shape
    kRows,     // a value for each row of its matrices (adafactor)
    kColumns,  // a value for each column
    kPair      // two numbers: the largest rate so far and the sum of weights (schedule_free)
  };
  const char* name;
  Form form = Form::kLike;
  std::size_t slot = 0;  // UpdateSlot::state1 is 0
};

// The states of a rule, in the order of their slots. `matrix`: of the parameter.
std::vector<StateSpec> StatesOf(const backend::UpdateRule& rule,
                                const backend::MatrixShape& matrix = {});
// torch.optim's name of a state: that of checkpoints, but for SGD's momentum.
std::string TorchName(const std::string& state);
// What a compensation of the master is called; "": the rule keeps none.
std::string NameOfRest(const backend::UpdateRule& rule);
// The parameter's matrices as a rule looks at them: muon at the first axis times all others,
// adafactor at the last two.
backend::MatrixShape MatrixOf(const backend::UpdateRule& rule,
                              const std::vector<std::int64_t>& dims);

}  // namespace ada::optim
