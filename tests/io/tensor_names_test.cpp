// Names of tensors in logs: which are operands, and the word of log.statistics for each.
#include "io/tensor_names.h"

#include <doctest/doctest.h>

#include <string>

namespace ada {

TEST_SUITE("cpu") {
  TEST_CASE("the operands of products and no other part of a tensor are operands") {
    for (const char* name : {"forward.x", "forward.w", "dx.dy", "dx.w", "dw.x", "dw.dy"}) {
      CAPTURE(name);
      CHECK(IsOperand(name));
      CHECK(std::string(StatisticOf(name)) == "operands");
      CHECK_FALSE(IsOfUpdate(name));
    }
    for (const char* name : {"y", "dx", "ds", "update", "update.weight", "state.exp_avg", "master",
                             "sent", "forward", "dx.dz"}) {
      CAPTURE(name);
      CHECK_FALSE(IsOperand(name));
    }
    CHECK(std::string(StatisticOf("update.weight")) == "update");
    CHECK(std::string(StatisticOf("dq")) == "dx");
    CHECK(std::string(StatisticOf("p")) == "y");
  }
}

}  // namespace ada
