// Tensors as symbols: a tensor's bytes repeat one 64-bit number that says by which formula it was
// made. A tensor that shares memory with a live one is found by its broken pattern or wrong number.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "number/random.h"
#include "number/tensor.h"

namespace ada::graph::test {

using Symbol = std::uint64_t;  // below 2^52: exact in a double

inline Symbol Hash(const std::string& formula, const std::vector<Symbol>& arguments) {
  std::string text = formula;
  for (const Symbol argument : arguments) text += "," + std::to_string(argument);
  return StreamId(text) >> 12;
}

// A sum of two does not depend on their order (a chain adds to its batch norm's output whatever
// stands first in `inputs`); a longer one is summed left to right.
inline Symbol AddSymbol(std::vector<Symbol> x) {
  if (x.size() == 2 && x[0] > x[1]) std::swap(x[0], x[1]);
  return Hash("add", x);
}

inline void Write(const Tensor& tensor, Symbol symbol) {
  REQUIRE(tensor.bytes() >= sizeof symbol);
  std::memcpy(tensor.data, &symbol, sizeof symbol);
  for (std::size_t done = sizeof symbol; done < tensor.bytes(); done *= 2) {
    std::memcpy(tensor.data + done, tensor.data, std::min(done, tensor.bytes() - done));
  }
}

inline Symbol Read(const Tensor& tensor) {
  REQUIRE(tensor);
  Symbol symbol;
  REQUIRE(tensor.bytes() >= sizeof symbol);
  std::memcpy(&symbol, tensor.data, sizeof symbol);
  const std::size_t rest = tensor.bytes() - sizeof symbol;
  const bool whole = std::memcmp(tensor.data, tensor.data + sizeof symbol, rest) == 0;
  REQUIRE_MESSAGE(whole, "a live tensor was overwritten");
  return symbol;
}

inline std::string Numbers(const std::string& name, const std::vector<double>& values) {
  std::string text = name;
  for (const double value : values) text += " " + std::to_string(value);
  return text;
}

}  // namespace ada::graph::test
